"""The output of pods is copied once, whenever the server that copies it is killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from millpond.engines.kubernetes.pods.copied_logs import LONGEST_HELD, LogFile, NewLines
from millpond.node.task.records import TaskFiles

LINES = [b"2026-11-24T10:00:01Z one\n", b"2026-11-24T10:00:01Z two\n", b"2026-11-24T10:00:02Z three\n"]


@pytest.fixture
def files(tmp_path: Path) -> TaskFiles:
    return TaskFiles(tmp_path / "run/task-0.json")


def copied(files: TaskFiles, *lines: bytes) -> LogFile:
    file = LogFile(files)
    file.take(list(lines))
    file.close()
    return file


def note_of(files: TaskFiles) -> Path:
    return files.log.with_suffix(".copied")


@pytest.mark.parametrize("kept", range(len(b"one\ntwo\nthree\n") + 1))
def test_a_server_that_was_killed_before_it_noted_how_far_it_came_copies_nothing_twice(
    files: TaskFiles, kept: int
) -> None:
    copied(files, *LINES)
    note_of(files).unlink()
    files.log.write_bytes(files.log.read_bytes()[:kept])
    copied(files, *LINES)
    assert files.log.read_bytes() == b"one\ntwo\nthree\n"


def test_the_same_holds_behind_what_was_noted(files: TaskFiles) -> None:
    copied(files, *LINES[:2])
    noted = note_of(files).read_text()
    copied(files, LINES[2])
    note_of(files).write_text(noted)
    file = copied(files, LINES[2], b"2026-11-24T10:00:03Z four\n")
    assert files.log.read_bytes() == b"one\ntwo\nthree\nfour\n"
    assert json.loads(note_of(files).read_text()) == [file.last, 1, len(b"one\ntwo\nthree\nfour\n")]


def test_a_server_that_is_killed_again_before_it_has_come_so_far_copies_nothing_twice(files: TaskFiles) -> None:
    copied(files, *LINES)
    note_of(files).unlink()
    copied(files, LINES[0])
    copied(files, *LINES[1:])
    assert files.log.read_bytes() == b"one\ntwo\nthree\n"


def test_what_the_cluster_has_lost_meanwhile_stays_in_the_copy(files: TaskFiles) -> None:
    copied(files, *LINES[:2])
    note_of(files).unlink()
    copied(files, LINES[2])
    assert files.log.read_bytes() == b"one\ntwo\nthree\n"


def test_a_note_of_an_earlier_version_is_gone_on_from(files: TaskFiles) -> None:
    file = copied(files, *LINES[:2])
    note_of(files).write_text(json.dumps([file.last, file.count]))
    copied(files, LINES[2])
    assert files.log.read_bytes() == b"one\ntwo\nthree\n"


BEGINNING = b"2026-11-24T10:00:02Z " + b"x" * LONGEST_HELD


def answered(files: TaskFiles, *pieces: bytes, is_cut: bool = False) -> None:
    """An answer of the cluster in these pieces is copied."""
    file = LogFile(files)
    lines = NewLines(file)
    for piece in pieces:
        lines.take(piece)
    if not is_cut:
        lines.end()
    file.close()


def test_a_line_without_an_end_is_copied_as_it_comes_and_not_held(files: TaskFiles) -> None:
    file = LogFile(files)
    lines = NewLines(file)
    for piece in (LINES[0], BEGINNING, b"yy", b"zz"):
        lines.take(piece)
    assert files.log.read_bytes() == b"one\n" + b"x" * LONGEST_HELD + b"yyzz"
    lines.take(b"\n2026-11-24T10:00:03Z next\n")
    file.close()
    assert files.log.read_bytes().endswith(b"xyyzz\nnext\n")


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_line_that_was_cut_while_it_came_goes_on_where_it_was(files: TaskFiles, is_killed: bool) -> None:
    answered(files, LINES[0], BEGINNING, b"yy", is_cut=True)
    if is_killed:
        files.log.write_bytes(files.log.read_bytes()[:-1])
    answered(files, LINES[0], BEGINNING, b"y", b"yzz", b"zz\n2026-11-24T10:00:02Z next\n")
    answered(files, LINES[0], BEGINNING, b"yyzzzz\n", b"2026-11-24T10:00:02Z next\n2026-11-24T10:00:02Z last\n")
    assert files.log.read_bytes() == b"one\n" + b"x" * LONGEST_HELD + b"yyzzzz\nnext\nlast\n"


def test_a_long_line_at_the_end_of_a_program_is_not_copied_twice(files: TaskFiles) -> None:
    answered(files, BEGINNING, b"yy")
    answered(files, BEGINNING, b"yy\n", LINES[2])
    assert files.log.read_bytes() == b"x" * LONGEST_HELD + b"yy" + b"three\n"


def test_a_short_line_without_an_end_is_not_copied_twice_and_goes_on_where_it_was(files: TaskFiles) -> None:
    half = b"2026-11-24T10:00:02Z half"
    answered(files, LINES[0], half)
    answered(files, LINES[0], half)
    assert files.log.read_bytes() == b"one\nhalf"
    answered(files, LINES[0], half + b" and more\n", b"2026-11-24T10:00:03Z next\n")
    answered(files, LINES[0], half + b" and more\n", b"2026-11-24T10:00:03Z next\n")
    assert files.log.read_bytes() == b"one\nhalf and more\nnext\n"


def test_lines_behind_the_last_are_copied_also_where_the_clock_of_their_node_is_set_back(files: TaskFiles) -> None:
    copied(files, *LINES)
    answered(files, *LINES, b"2026-11-24T10:00:03Z four\n", b"2026-11-24T09:00:00Z five\n")
    assert files.log.read_bytes() == b"one\ntwo\nthree\nfour\nfive\n"
