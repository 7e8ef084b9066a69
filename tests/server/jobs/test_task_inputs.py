"""Standard input from clients: a piece that comes again is taken once, one that is missing is asked for."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from job_infos import job_info
from millpond.model.errors import ConflictError
from millpond.node.task.input import ROOM_BYTES, InputRing
from millpond.node.task.records import TaskFiles, TaskId
from millpond.server.jobs import task_inputs
from millpond.server.jobs.task_inputs import SILENT_S, InputPiece, TaskInputs, end_silent
from millpond.server.runtime.active_jobs.job_cache import JobCache
from millpond.specs.api.jobs.jobs import JobInfo, TaskInfo
from millpond.specs.api.jobs.requests import InputInfo


class Scene:
    """A running job that reads standard input."""

    def __init__(self, state_dir: Path) -> None:
        self.path = TaskFiles.of(state_dir, TaskId("j", 1, 0)).input
        self.path.parent.mkdir(parents=True)
        self.live: JobInfo | None = self.job()
        self.now = 0.0
        self.state_dir = state_dir
        self.restart()

    def restart(self) -> None:
        """Another server goes on."""
        self.inputs = TaskInputs(self.state_dir, lambda _: self.live, threading.Event(), lambda: self.now)

    def ended_after(self, seconds: float) -> list[str]:
        """Jobs whose input the server ends at the look that it takes then."""
        self.now += seconds
        return self.inputs.end_silent([] if self.live is None else [self.live])

    def job(self, state: str = "running") -> JobInfo:
        return job_info(id="j", state=state, tasks=[TaskInfo(task=0, role="worker", state=state)])

    def send(self, data: bytes, offset: int = 0, *, end: bool = False, attempt: int = 1) -> InputInfo:
        return asyncio.run(self.inputs.receive(self.job(), InputPiece(attempt, offset, data, end)))


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(task_inputs, "WAIT_S", 0.0)
    return Scene(tmp_path)


def test_a_piece_that_comes_again_is_taken_once(scene: Scene) -> None:
    with InputRing.create(scene.path) as ring:
        assert scene.send(b"abc") == InputInfo(received=3, open=True)
        assert scene.send(b"abcdef") == InputInfo(received=6, open=True)
        assert scene.send(b"def", 3, end=True) == InputInfo(received=6, open=False)
        assert (ring.next(100), ring.ended) == (b"abcdef", True)


def test_that_a_run_was_sent_something_is_on_disk_before_the_task_hears_of_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    InputRing.create(scene.path).close()
    done: list[str] = []
    monkeypatch.setattr(InputRing, "keep", lambda ring: done.append(f"{ring.received} on disk"))
    monkeypatch.setattr(task_inputs, "read_record", lambda _: done.append("woken"))
    scene.send(b"")
    scene.send(b"abc")
    scene.send(b"def", 3)
    assert done == ["3 on disk", "woken", "woken"]


def test_what_lacks_something_before_it_is_refused(scene: Scene) -> None:
    InputRing.create(scene.path).close()
    with pytest.raises(ConflictError, match=r"byte 5 .* byte 0"):
        scene.send(b"x", 5)


def test_no_more_is_taken_than_there_is_room_for_and_the_end_waits_for_the_rest(scene: Scene) -> None:
    with InputRing.create(scene.path) as ring:
        assert scene.send(b"x" * (ROOM_BYTES + 9), end=True) == InputInfo(received=ROOM_BYTES, open=True)
        assert not ring.ended
        ring.take(9)
        assert scene.send(b"x" * 9, ROOM_BYTES, end=True) == InputInfo(received=ROOM_BYTES + 9, open=False)
        assert ring.ended


def test_a_task_that_reads_no_more_and_a_run_that_is_over_take_nothing(scene: Scene) -> None:
    with InputRing.create(scene.path) as ring:
        assert not scene.send(b"x", attempt=2).open
        scene.live = None
        assert not scene.send(b"x").open
        scene.live = scene.job()
        ring.close_reader()
        assert not scene.send(b"x").open


def test_the_input_of_a_sender_that_is_gone_is_ended_and_it_is_told_so_should_it_come_back(scene: Scene) -> None:
    with InputRing.create(scene.path) as ring:
        assert scene.ended_after(0) == []
        scene.send(b"abc")
        assert scene.ended_after(SILENT_S - 1) == []
        assert scene.ended_after(1) == ["j"]
        assert (ring.next(100), ring.ended) == (b"abc", True)
        assert scene.ended_after(SILENT_S) == [], "it is ended once"
        for closed in (False, True):
            for data, end in ((b"d", False), (b"", False), (b"d", True)):
                with pytest.raises(ConflictError, match="has ended at byte 3"):
                    scene.send(data, 3, end=end)
            if not closed:
                ring.close_reader()
        assert scene.send(b"c", 2, end=True) == InputInfo(received=3, open=False), "nothing of it is missing"


def test_the_history_of_a_job_tells_that_its_input_was_ended(scene: Scene) -> None:
    job_cache, told = JobCache(), []
    assert scene.live is not None
    job_cache.put(scene.live)
    loop = SimpleNamespace(job_cache=job_cache, note=lambda job, text: told.append((job, text)))
    InputRing.create(scene.path).close()
    end_silent(loop, scene.inputs)  # type: ignore[arg-type]
    scene.now += SILENT_S
    end_silent(loop, scene.inputs)  # type: ignore[arg-type]
    assert told == [("j", "its standard input was ended: its sender was not heard of for 10m")]


def test_the_input_of_a_run_that_is_over_is_left_as_it_was(scene: Scene) -> None:
    with InputRing.create(scene.path) as ring:
        scene.live = scene.job("queued")
        scene.ended_after(0)
        assert scene.ended_after(SILENT_S) == []
        assert not ring.ended


def test_a_sender_that_never_came_is_waited_for_as_long(scene: Scene) -> None:
    InputRing.create(scene.path).close()
    assert scene.ended_after(0) == []
    assert scene.ended_after(SILENT_S) == ["j"]


def test_a_sender_that_says_that_more_will_come_is_waited_for(scene: Scene) -> None:
    InputRing.create(scene.path).close()
    for _ in range(5):
        scene.send(b"")
        assert scene.ended_after(SILENT_S - 1) == []


def test_after_a_restart_of_the_server_a_sender_has_all_the_time_to_come_back(scene: Scene) -> None:
    InputRing.create(scene.path).close()
    scene.send(b"abc")
    scene.now += SILENT_S
    scene.restart()
    assert scene.ended_after(0) == []
    assert scene.ended_after(SILENT_S - 1) == []
    assert scene.send(b"def", 3, end=True) == InputInfo(received=6, open=False)


def test_a_job_without_standard_input_says_so(scene: Scene) -> None:
    with pytest.raises(ConflictError, match="reads no standard input"):
        scene.send(b"x")
