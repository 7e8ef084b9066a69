"""Where a task's files lie, and files that are never half written."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from millpond.node.host import files
from millpond.node.host.files import keep_room, read_json, room_for, write_json
from millpond.node.task.records import TaskFiles, TaskId, attempt_dir, read_record


def test_the_log_lies_where_the_documentation_says(tmp_path: Path) -> None:
    files = TaskFiles.of(tmp_path, TaskId("resnet", 2, 3))
    assert files.log == tmp_path / "jobs" / "resnet" / "attempt-2" / "task-3.log"


def test_a_file_that_two_threads_write_at_once_is_one_of_theirs_and_both_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, others = tmp_path / "gang.json", [threading.Thread(target=lambda: write_json(path, {"by": "the other"}))]

    def slow_write(file: int, text: bytes) -> None:
        if others:
            (other := others.pop()).start()
            other.join()
        os.write(file, text)

    monkeypatch.setattr(files, "write_all", slow_write)
    write_json(path, {"by": "one"})
    assert read_json(path) == {"by": "one"}
    assert [each.name for each in tmp_path.iterdir()] == ["gang.json"]


@pytest.mark.parametrize("job", ["../../etc", "..", ".", "a/b", "x" * 120, "\N{SNOWMAN}" * 120, "a\0b", "%2E"])
def test_no_job_id_leads_out_of_its_directory_or_makes_too_long_a_name(tmp_path: Path, job: str) -> None:
    directory = attempt_dir(tmp_path, job, 1)
    directory.mkdir(parents=True)
    assert directory.resolve().parent.parent == tmp_path / "jobs"


def test_different_job_ids_have_different_directories(tmp_path: Path) -> None:
    jobs = ["a/b", "a%2Fb", "A/b", ".", "..", "...", "\N{SNOWMAN}" * 119, "\N{SNOWMAN}" * 120]
    assert len({attempt_dir(tmp_path, job, 1) for job in jobs}) == len(jobs)


def test_a_task_that_never_started_has_no_record(tmp_path: Path) -> None:
    assert read_record(TaskFiles.of(tmp_path, TaskId("a", 1, 0))) is None


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write_json(path, {"a": 1}, durable=True)
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert read_json(path) == {"a": 1}


def test_a_file_that_finds_no_room_leaves_nothing_beside_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.json"
    write_json(path, {"before": 1})

    def full(file: int, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files, "write_all", full)
    with pytest.raises(OSError, match="No space left"):
        write_json(path, {"after": 1})
    assert [each.name for each in tmp_path.iterdir()] == ["x.json"]
    assert read_json(path) == {"before": 1}


def test_a_file_for_which_room_was_kept_takes_no_new_blocks(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write_json(path, {"running": True})
    keep_room(path)
    kept = Path(room_for(path)).stat()
    write_json(path, {"ended": True}, durable=True, in_room=True)
    assert read_json(path) == {"ended": True}
    assert path.stat().st_ino == kept.st_ino
    assert path.stat().st_blocks <= kept.st_blocks
    assert [file.name for file in tmp_path.iterdir()] == ["record.json"]


def test_room_does_for_one_file_and_the_next_is_written_as_any_other(tmp_path: Path) -> None:
    path = tmp_path / "wish.json"
    keep_room(path)
    for grace_s in (30, 5):
        write_json(path, {"grace_s": grace_s}, in_room=True)
    assert read_json(path) == {"grace_s": 5}
    assert [file.name for file in tmp_path.iterdir()] == ["wish.json"]


def test_a_file_torn_by_a_power_cut_counts_as_absent(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_bytes(b'{"a": ')
    assert read_json(path) is None
    path.write_bytes(b"")
    assert read_json(path) is None


@pytest.mark.parametrize(
    "put",
    [
        Path.mkdir,
        os.mkfifo,
        lambda path: path.symlink_to(path),
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.write_bytes(b"\xff\0"),
        lambda path: path.write_text("[" * 100_000),
        lambda path: path.write_text("{}"),
        lambda path: path.write_text(json.dumps({"job": "a", "attempt": 1, "task": 0, "devices": 7, "groups": None})),
    ],
    ids=["folder", "pipe", "loop", "endless", "bytes", "deep", "empty", "odd"],
)
def test_what_a_task_puts_where_its_record_was_counts_as_no_record(
    tmp_path: Path, put: Callable[[Path], object]
) -> None:
    files = TaskFiles.of(tmp_path, TaskId("a", 1, 0))
    files.record.parent.mkdir(parents=True)
    put(files.record)
    assert read_record(files) is None
