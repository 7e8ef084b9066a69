"""What tasks in pods leave, as it comes to lie on the server's machine."""

from __future__ import annotations

from pathlib import Path

from millpond.node.task.records import TaskFiles, TaskId
from millpond.node.task.workspace import OUTPUT, Workspace
from millpond.server.storage.files.blobs import BlobStore
from millpond.server.storage.files.run_files import RunFiles
from millpond.specs.job.snapshots import FileEntry, FolderSnapshot

TASK = TaskId("train-aaaaa", 1, 0)


def left(blobs: BlobStore, **texts: str) -> str:
    """The snapshot of a folder with these files, sent."""
    entries = [FileEntry(path=name, digest=blobs.keep(text.encode()), size=len(text)) for name, text in texts.items()]
    return blobs.keep(FolderSnapshot(files=tuple(entries)).encoded())


def test_what_a_task_leaves_follows_it_and_a_note_that_a_power_cut_has_emptied_holds_up_nothing(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path)
    runs = RunFiles(tmp_path, blobs, lambda job: Workspace("", ""))
    runs.take_output(TASK, left(blobs, model="1", log="a"), "")
    runs.take_output(TASK, left(blobs, model="2"), "")
    record = TaskFiles.of(tmp_path, TASK).record
    folder = record.parent / OUTPUT
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"model": "2"}
    record.with_suffix(".carried").write_text("")
    runs.take_output(TASK, left(blobs, model="3", more="b"), "")
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"model": "3", "more": "b"}
