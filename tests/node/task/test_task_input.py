"""Standard input on its way to a task: every byte once, in order, no more than there is room for."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import pytest

from millpond.node.task import input as task_input
from millpond.node.task.input import InputRing, TaskInput

pytestmark = pytest.mark.usefixtures("ignored_sigio")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = tmp_path / "attempt-1" / "task-0.stdin"
    place.parent.mkdir()
    return place


class Task:
    """A task whose standard input the test reads."""

    def __init__(self, path: Path) -> None:
        self.input = TaskInput(path, None)
        self.end = os.dup(self.input.end)
        os.set_blocking(self.end, False)
        self.input.begin()

    def read(self, most: int = 1_000_000) -> bytes | None:
        """What there is; None: nothing yet."""
        try:
            return os.read(self.end, most)
        except BlockingIOError:
            return None


def test_what_is_put_comes_out_in_order_round_and_round(path, monkeypatch) -> None:
    monkeypatch.setattr(task_input, "ROOM_BYTES", 10)
    task, found, given = Task(path), b"", bytes(range(256))
    with InputRing(path) as ring:
        while len(found) < len(given):
            ring.put(given[ring.received : ring.received + 7])
            task.input.pass_on()
            found += task.read() or b""
        assert (found, ring.received, ring.fed) == (given, 256, 256)


def test_a_task_that_does_not_read_leaves_no_more_room_than_ring_and_pipe(path) -> None:
    task = Task(path)
    with InputRing(path) as ring:
        taken = [ring.put(b"x" * 2**19)]
        while taken[-1]:
            task.input.pass_on()
            taken.append(ring.put(b"x" * 2**19))
        assert sum(taken) == task_input.ROOM_BYTES + 65_536
        assert len(task.read() or b"") == 65_536
        task.input.pass_on()
        assert ring.put(b"x" * 2**19) == 65_536


def test_the_end_comes_behind_everything_else(path) -> None:
    task = Task(path)
    with InputRing(path) as ring:
        task.input.pass_on()
        assert task.read() is None
        ring.put(b"last")
        ring.end()
        task.input.pass_on()
        assert (task.read(), task.read()) == (b"last", b"")
    assert path.stat().st_size == 4_096  # the room is given back


@pytest.mark.parametrize("data", [b"", b"more"])
def test_a_task_that_closes_its_input_is_sent_nothing_more(path, data) -> None:
    task = Task(path)
    os.close(task.end)
    with InputRing(path) as ring:
        ring.put(data)
        task.input.pass_on()
        assert ring.closed


def test_a_run_after_one_that_was_sent_something_is_not_started(path) -> None:
    later = path.parents[1] / "attempt-2" / path.name
    later.parent.mkdir()
    Task(path)
    TaskInput(later, None).close()
    with InputRing(path) as ring:
        ring.put(b"x")
    with pytest.raises(OSError, match="comes once only") as refused:
        TaskInput(later, None)
    assert refused.value.errno == errno.ESPIPE


def test_what_a_disk_takes_only_in_part_does_not_count_as_taken(path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with InputRing.create(path) as ring:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
        try:
            with pytest.raises(OSError, match="File too large"):
                ring.put(b"x" * 50_000)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert (ring.received, ring.next(100_000)) == (0, b"")
        assert ring.put(b"y" * 50_000) == 50_000
        assert ring.next(100_000) == b"y" * 50_000


def test_what_is_put_into_a_ring_the_moment_it_exists_stays(path, monkeypatch) -> None:
    plain_open = os.open

    def opened(file, flags, *mode) -> int:
        handle = plain_open(file, flags, *mode)
        if flags & os.O_CREAT:
            with InputRing(path) as other:
                other.put(b"early")
        return handle

    monkeypatch.setattr(os, "open", opened)
    with InputRing.create(path) as ring:
        assert (ring.received, ring.next(100)) == (5, b"early")


def test_a_ring_that_a_power_cut_left_empty_was_sent_nothing(path) -> None:
    path.touch()
    with InputRing(path) as ring:
        assert (ring.received, ring.fed, ring.ended, ring.closed) == (0, 0, False, False)
    later = path.parent.with_name("attempt-2") / path.name
    later.parent.mkdir()
    TaskInput(later, None).begin()
