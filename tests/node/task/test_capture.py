"""A task's output on its way into its log: in order, each stream known, whatever the disk does."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from millpond.node.task import output
from millpond.node.task.output import LogIndex, OutputCapture, Stream

OUT, ERR = Stream.STDOUT, Stream.STDERR


class Scene:
    """A capture whose pipes the test writes to, as a program would."""

    def __init__(self, folder: Path) -> None:
        self.log, self.index = folder / "task-0.log", folder / "task-0.index"
        self.capture = OutputCapture(self.log, self.index, None)
        self.ends = {stream: os.dup(end) for stream, end in self.capture.ends.items()}
        self.capture.begin()

    def write(self, *pieces: tuple[Stream, bytes]) -> None:
        for stream, data in pieces:
            os.write(self.ends[stream], data)

    def over(self) -> None:
        for end in self.ends.values():
            os.close(end)
        self.capture.close()

    def marks(self) -> list[tuple[int, Stream]]:
        with LogIndex(self.index) as index:
            return [(mark.offset, mark.stream) for mark in index.marks_from(0)]


pytestmark = pytest.mark.usefixtures("ignored_sigio")


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_the_log_has_everything_in_the_order_in_which_it_came_and_the_index_tells_the_streams_apart(scene) -> None:
    for piece in ((OUT, b"one\n"), (ERR, b"two\n"), (ERR, b"three\n"), (OUT, b"four\n")):
        scene.write(piece)
        scene.capture.drain()
    scene.over()
    assert scene.log.read_bytes() == b"one\ntwo\nthree\nfour\n"
    assert [mark for mark in scene.marks() if mark[0] != 8] == [(0, OUT), (4, ERR), (14, OUT)]


@pytest.mark.parametrize(("first", "second"), [(OUT, ERR), (ERR, OUT)])
def test_what_came_while_nobody_looked_begins_with_the_stream_that_was_written_to_first(scene, first, second) -> None:
    scene.write((first, b"1\n"), (second, b"2\n"))
    scene.capture.drain()
    scene.write((first, b"3\n"), (second, b"4\n"))
    scene.over()
    assert scene.log.read_bytes() == b"1\n2\n3\n4\n"


def test_a_stream_that_does_not_change_is_marked_once_in_a_hundredth_of_a_second(scene, monkeypatch) -> None:
    now = [1_000_000_000]
    monkeypatch.setattr(output.time, "time_ns", lambda: now[0])
    for _ in range(30):
        scene.write((OUT, b"x"))
        scene.capture.drain()
        now[0] += 1_000_000
    scene.over()
    assert scene.marks() == [(0, OUT), (10, OUT), (20, OUT)]


def test_one_stream_that_never_pauses_leaves_the_other_its_turn(scene, monkeypatch) -> None:
    monkeypatch.setattr(output, "_PIPE_BYTES", 10)
    scene.write((OUT, b"x" * 1_000), (ERR, b"help"))
    assert scene.capture.drain()
    assert scene.log.read_bytes() == b"x" * 160 + b"help"
    scene.over()


def test_lines_that_the_server_adds_do_not_shift_the_index(scene) -> None:
    scene.write((OUT, b"a"))
    scene.capture.drain()
    with scene.log.open("ab") as log:
        log.write(b"millpond: idle\n")
    scene.write((ERR, b"b"))
    scene.over()
    assert scene.marks() == [(0, OUT), (16, ERR)]


def test_on_a_full_disk_output_is_lost_and_the_program_goes_on(tmp_path) -> None:
    (tmp_path / "task-0.log").symlink_to("/dev/full")
    scene = Scene(tmp_path)
    for _ in range(4):  # more than a pipe holds: whoever reads nothing stops the program
        scene.write((OUT, b"x" * 40_000))
        scene.capture.drain()
    scene.over()


@pytest.fixture
def disk(monkeypatch) -> list[bool]:
    """Whether the disk has room, as its only item."""
    has_room, write_all = [True], output.write_all

    def write(file: int, data: bytes) -> None:
        if not has_room[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_all(file, data)

    monkeypatch.setattr(output, "write_all", write)
    return has_room


def test_where_a_full_disk_has_lost_output_the_log_says_so_once_in_standard_error(scene, disk) -> None:
    for piece, has_room in ((b"one", True), (b"two", False), (b"three", False), (b"four\n", True), (b"five\n", True)):
        disk[0] = has_room
        scene.write((OUT, piece))
        scene.capture.drain()
    scene.over()
    lines = scene.log.read_bytes().splitlines(keepends=True)
    assert lines == [b"one\n", b"millpond: output is missing here: the disk was full\n", b"four\n", b"five\n"]
    assert scene.marks()[1:3] == [(3, ERR), (4 + len(lines[1]), OUT)]


def test_output_that_was_lost_last_is_named_when_the_program_ends(scene, disk) -> None:
    disk[0] = False
    scene.write((OUT, b"lost"))
    scene.capture.drain()
    disk[0] = True
    scene.over()
    assert scene.log.read_bytes() == b"\nmillpond: output is missing here: the disk was full\n"
