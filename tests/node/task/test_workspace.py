"""The files of an attempt: copies that a task may change, and never the store."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from millpond.model.folders import digest_of
from millpond.node.host.files import try_lock
from millpond.node.task import workspace
from millpond.node.task.workspace import DataMount, Workspace, blob_path, clear_dataset, lay_out_dataset, prepare
from millpond.specs.job.snapshots import FileEntry, FolderSnapshot, LinkEntry


class Contents:
    """A store of contents, and attempts that use it."""

    def __init__(self, root: Path) -> None:
        self.blobs = root / "blobs"
        self.datasets = root / "files/datasets"
        self.attempts = root / "attempts"

    def put(self, data: bytes) -> str:
        digest = digest_of(data)
        path = blob_path(self.blobs, digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return digest

    def snapshot(self, files: dict[str, bytes], links: dict[str, str] | None = None) -> str:
        entries = tuple(
            FileEntry(path=path, digest=self.put(data), size=len(data), executable=path.endswith(".sh"))
            for path, data in files.items()
        )
        found = FolderSnapshot(
            files=entries, links=tuple(LinkEntry(path=a, target=b) for a, b in (links or {}).items())
        )
        return self.put(found.encoded())

    def attempt(self, name: str = "1", **parts: object) -> Path:
        folder = self.attempts / name
        folder.mkdir(parents=True, exist_ok=True)
        prepare(Workspace(str(self.blobs), str(self.datasets), **parts), folder)  # type: ignore[arg-type]
        return folder


@pytest.fixture
def contents(tmp_path: Path) -> Contents:
    return Contents(tmp_path)


def test_a_task_gets_copies_with_links_and_executable_bits(contents: Contents) -> None:
    sent = contents.snapshot({"a": b"x", "sub/run.sh": b"y"}, {"sub/l": "../a"})
    work = contents.attempt(snapshot=sent) / "files/work"
    assert (work / "a").read_text() == "x"
    assert os.access(work / "sub/run.sh", os.X_OK)
    assert not os.access(work / "a", os.X_OK)
    assert (work / "sub/l").resolve() == work / "a"


def test_what_a_task_does_to_its_files_reaches_neither_the_store_nor_another_attempt(contents: Contents) -> None:
    sent = contents.snapshot({"a": b"x"})
    (contents.attempt("1", snapshot=sent) / "files/work/a").write_text("changed")
    assert (contents.attempt("2", snapshot=sent) / "files/work/a").read_text() == "x"
    assert blob_path(contents.blobs, digest_of(b"x")).read_bytes() == b"x"


def test_files_are_laid_out_once_for_all_tasks_of_an_attempt(contents: Contents) -> None:
    sent = contents.snapshot({"a": b"x"})
    (contents.attempt(snapshot=sent) / "files/work/a").write_text("changed by the first task")
    assert (contents.attempt(snapshot=sent) / "files/work/a").read_text() == "changed by the first task"


def test_an_interrupted_layout_begins_anew(contents: Contents) -> None:
    sent = contents.snapshot({"a": b"x"})
    half = contents.attempts / "1/files/work"
    half.mkdir(parents=True)
    (half / "stale").touch()
    assert sorted(path.name for path in (contents.attempt(snapshot=sent) / "files/work").iterdir()) == ["a"]


def test_a_damaged_content_is_never_handed_to_a_task(contents: Contents) -> None:
    sent = contents.snapshot({"a": b"x"})
    blob_path(contents.blobs, digest_of(b"x")).write_bytes(b"y")
    with pytest.raises(OSError, match="damaged"):
        contents.attempt(snapshot=sent)


@pytest.mark.parametrize("cut", [b"", b"y"])
def test_a_damaged_content_counts_as_missing_so_that_it_is_sent_again(contents: Contents, cut: bytes) -> None:
    sent = contents.snapshot({"a": b"x"})
    for digest in (digest_of(b"x"), sent):
        whole = blob_path(contents.blobs, digest).read_bytes()
        blob_path(contents.blobs, digest).write_bytes(cut)
        with pytest.raises(OSError, match="send it again"):
            contents.attempt(snapshot=sent)
        assert not blob_path(contents.blobs, digest).exists()
        contents.put(whole)
    assert (contents.attempt(snapshot=sent) / "files/work/a").read_text() == "x"


def test_a_dataset_is_on_disk_before_it_comes_under_its_name(
    contents: Contents, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = contents.snapshot({"images/1": b"x", "2": b"y"}, {"l": "2"})
    place, forced, fsync = contents.datasets / put, set(), os.fsync

    def record(file: int) -> None:
        assert not place.exists()
        forced.add(os.fstat(file).st_ino)
        fsync(file)

    monkeypatch.setattr(os, "fsync", record)
    contents.attempt(data=(DataMount("set", snapshot=put),))
    assert forced == {(place / name).stat().st_ino for name in ("images/1", "2", "images", ".")}


def test_a_list_that_leads_out_is_not_followed(contents: Contents) -> None:
    sent = contents.put(b'{"files":[{"path":"../out","digest":"%s","executable":false}],"links":[]}' % (b"0" * 64))
    with pytest.raises(OSError, match="path"):
        contents.attempt(snapshot=sent)
    assert not (contents.attempts / "1/out").exists()


def test_a_lock_that_is_removed_while_it_is_waited_for_keeps_others_from_laying_the_same_dataset_out(
    contents: Contents, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = contents.snapshot({"a": b"x"})
    contents.datasets.mkdir(parents=True)
    lock_file, lay_out, taken = fcntl.flock, workspace.lay_out, list[bool]()

    def wait_for_its_removal(file: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", lock_file)
        clear_dataset(contents.datasets, put, is_used=False)
        lock_file(file, how)

    def look(blobs: Path, snapshot: str, folder: Path) -> None:
        with (contents.datasets / f"{put}.lock").open("w") as another:
            taken.append(not try_lock(another.fileno()))
        lay_out(blobs, snapshot, folder)

    monkeypatch.setattr(fcntl, "flock", wait_for_its_removal)
    monkeypatch.setattr(workspace, "lay_out", look)
    lay_out_dataset(contents.blobs, contents.datasets, put)
    assert taken == [True]


def test_data_is_a_link_and_a_dataset_is_laid_out_once_and_write_protected(contents: Contents, tmp_path: Path) -> None:
    (tmp_path / "host").mkdir()
    put = contents.snapshot({"images/1": b"x"})
    mounts = (DataMount("here", path=str(tmp_path / "host")), DataMount("set", snapshot=put))
    first, second = contents.attempt("1", data=mounts), contents.attempt("2", data=mounts)
    assert (first / "files/data/here").resolve() == tmp_path / "host"
    assert (first / "files/data/set/images/1").read_text() == "x"
    assert (first / "files/data/set").resolve() == (second / "files/data/set").resolve()
    assert (first / "files/data/set/images/1").stat().st_mode & 0o222 == 0


def test_data_that_is_gone_is_named(contents: Contents, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="the data 'here' is not there"):
        contents.attempt(data=(DataMount("here", path=str(tmp_path / "gone")),))


def test_output_goes_to_a_folder_of_the_attempt_or_to_the_host_folder(contents: Contents, tmp_path: Path) -> None:
    assert (contents.attempt("1") / "files/output").is_dir()
    own = contents.attempt("2", output=str(tmp_path / "results/run"))
    (own / "files/output/model").touch()
    assert (tmp_path / "results/run/model").exists()
