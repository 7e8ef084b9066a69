"""The files of one attempt, laid out before its tasks start: what was sent, its data, a place for its output.

Runs in the supervisor, so that the engine never waits for a disk; hence the standard library alone. The first task of
an attempt does the work, the others wait for it. In ``STATE/jobs/JOB/attempt-N/files/``, which is all that a sandboxed
task sees of the state directory:

- ``work/``: a copy of the snapshot. Copies, not links: a task may do with its files what it likes and never changes
  the store, nor another job's files. What is copied is compared with its hash on the way.
- ``payload``: a copy of the one content that was sent along.
- ``data/NAME``: a link to the host path or to the dataset. A dataset is laid out once (``STATE/datasets/DIGEST/``),
  write-protected, for all jobs. A sandbox has both read-only.
- ``output/``: what the job leaves behind; a link where the job file names a host path.
- ``task-N.metrics``, ``task-N.result``: what a task reports of itself (``job``).
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from millpond.node.host.files import try_lock
from millpond.node.host.folder_trees import remove_tree
from millpond.node.sandbox.sandbox import Mount
from millpond.node.task.identity import Identity, acting_as
from millpond.node.task.layout import READABLE, laid_out, mode_of, open_new, protect
from millpond.node.task.records import FILES

WORK, PAYLOAD, DATA, OUTPUT = (f"{FILES}/{name}" for name in ("work", "payload", "data", "output"))

_LOCK = "workspace.lock"
_READY = "workspace.ready"
_PIECE = 2**20


@dataclass(frozen=True, slots=True)
class DataMount:
    """Something a job reads: a host path (``copied``: of a copy that the server made), or the snapshot of a dataset."""

    name: str
    path: str = ""
    snapshot: str = ""
    copied: bool = False


@dataclass(frozen=True, slots=True)
class Workspace:
    """What an attempt's folder is made of.

    Attributes:
        blobs: where contents lie; this and all paths here are absolute and free of links.
        datasets: where datasets are laid out.
        snapshot: of the working directory; empty: it runs in place.
        payload: one content sent along; empty: none.
        output: host folder for what it leaves behind; empty: one of its own.
    """

    blobs: str
    datasets: str
    snapshot: str = ""
    payload: str = ""
    data: tuple[DataMount, ...] = ()
    output: str = ""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to lay out but a place for output."""
        return not (self.snapshot or self.payload or self.data or self.output)

    def environment(self, attempt_dir: Path) -> dict[str, str]:
        """Variables by which a task finds its files."""
        found = {"MILLPOND_OUTPUT": self.output or str(attempt_dir / OUTPUT)}
        if self.payload:
            found["MILLPOND_PAYLOAD"] = str(attempt_dir / PAYLOAD)
        for mount in self.data:
            found[data_variable(mount.name)] = str(attempt_dir / DATA / mount.name)
        return found

    def mounts(self, attempt_dir: Path) -> list[Mount]:
        """What a sandbox must leave in place."""
        data = [Path(mount.path) if mount.path else Path(self.datasets, mount.snapshot) for mount in self.data]
        found = [Mount(path, writable=False) for path in data] + [Mount(attempt_dir / FILES, writable=True)]
        return [*found, Mount(Path(self.output), writable=True)] if self.output else found


def data_variable(name: str) -> str:
    """The variable that names the place of some data: ``MILLPOND_DATA_TRAIN`` for ``train``."""
    return "MILLPOND_DATA_" + "".join(letter if letter.isalnum() else "_" for letter in name).upper()


def blob_path(blobs: Path, digest: str) -> Path:
    """Where a content lies, if it is here."""
    return blobs / digest[:2] / digest[2:]


def make_output(attempt_dir: Path) -> None:
    """The place for output of an attempt that needs nothing else; quick."""
    (attempt_dir / OUTPUT).mkdir(parents=True, exist_ok=True, mode=0o700)


def prepare(workspace: Workspace, attempt_dir: Path, identity: Identity | None = None) -> None:
    """Lay the files out, once per attempt.

    Args:
        identity: whom the tasks run as; None: as we do.

    Raises:
        OSError: the disk is full, or something that is needed is not there or damaged.
    """
    with (attempt_dir / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (attempt_dir / _READY).exists():
            return
        (attempt_dir / FILES).mkdir(exist_ok=True, mode=0o700)
        blobs = Path(workspace.blobs)
        if workspace.snapshot:
            lay_out(blobs, workspace.snapshot, attempt_dir / WORK)
        if workspace.payload:
            copy_content(blobs, workspace.payload, attempt_dir / PAYLOAD, 0o600)
        for mount in workspace.data:
            _link_data(workspace, mount, attempt_dir / DATA)
        _lead_output(workspace.output, attempt_dir, identity)
        (attempt_dir / _READY).touch()


def _lead_output(host_folder: str, attempt_dir: Path, identity: Identity | None) -> None:
    if not host_folder:
        make_output(attempt_dir)
        return
    place = attempt_dir / OUTPUT
    with acting_as(identity):  # who may not make it there themselves does not get it by us
        Path(host_folder).mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    place.symlink_to(host_folder)


def _link_data(workspace: Workspace, mount: DataMount, folder: Path) -> None:
    folder.mkdir(exist_ok=True, mode=0o700)
    blobs, datasets = Path(workspace.blobs), Path(workspace.datasets)
    source = Path(mount.path) if mount.path else lay_out_dataset(blobs, datasets, mount.snapshot)
    if not source.exists():
        raise FileNotFoundError(errno.ENOENT, f"the data {mount.name!r} is not there", str(source))
    place = folder / mount.name
    place.unlink(missing_ok=True)
    place.symlink_to(source)


def lay_out_dataset(blobs: Path, datasets: Path, snapshot: str) -> Path:
    """The dataset's folder, laid out on first use.

    Raises:
        OSError: the disk is full, or a content is not there or damaged.
    """
    datasets.mkdir(parents=True, exist_ok=True, mode=0o700)
    place = datasets / snapshot
    with _locked(datasets / f"{snapshot}.lock"):
        if not place.exists():
            fresh = datasets / f"{snapshot}.new"
            lay_out(blobs, snapshot, fresh)
            protect(fresh)
            _force_to_disk(fresh)
            fresh.rename(place)
        if place.stat().st_mode & 0o777 != READABLE:  # by all accounts that tasks run as; the way to it is closed
            place.chmod(READABLE)
    return place


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of that name. One that was removed while it was waited for (``clear_dataset``) keeps nobody out."""
    while True:
        with path.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if path.exists() and path.samefile(f"/proc/self/fd/{lock.fileno()}"):
                yield
                return


def clear_dataset(datasets: Path, snapshot: str, is_used: bool) -> None:
    """Remove what is not needed of a dataset: while it is used, what was left of laying it out; else all of it.

    Raises:
        OSError: something cannot be removed.
    """
    path = datasets / f"{snapshot}.lock"
    with path.open("w") as lock:
        if not try_lock(lock.fileno()):
            return  # it is being laid out
        for place in (datasets / f"{snapshot}.new", *([] if is_used else [datasets / snapshot])):
            if place.is_dir():
                remove_tree(place)
        if not is_used:
            path.unlink()


def _force_to_disk(folder: Path) -> None:
    """A folder that comes under its name is read unchecked from then on, after a power cut too."""
    for above, _, files in os.walk(folder):
        for path in (*(Path(above, name) for name in files), Path(above)):
            if not path.is_symlink():
                file = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(file)
                finally:
                    os.close(file)


def lay_out(blobs: Path, snapshot: str, folder: Path) -> None:
    """Copy a snapshot into a new folder; what an interrupted attempt left there goes first.

    Raises:
        OSError: the disk is full, or a content is not there or damaged.
    """
    if folder.exists():
        remove_tree(folder)
    folder.mkdir(mode=0o700)
    listed = json.loads(_verified(blobs, snapshot))
    for entry, place in laid_out(listed, folder):
        copy_content(blobs, entry["digest"], place, mode_of(entry))


def _verified(blobs: Path, digest: str) -> bytes:
    data = blob_path(blobs, digest).read_bytes()
    if hashlib.sha256(data).hexdigest() != digest:
        raise _damaged(blobs, digest)
    return data


def copy_content(blobs: Path, digest: str, place: Path, mode: int) -> None:
    """Copy a content and compare it with its name on the way."""
    seen = hashlib.sha256()
    with blob_path(blobs, digest).open("rb") as source, open_new(place, mode) as target:
        while piece := source.read(_PIECE):
            seen.update(piece)
            target.write(piece)
    if seen.hexdigest() != digest:
        raise _damaged(blobs, digest)


def _damaged(blobs: Path, digest: str) -> OSError:
    """Makes room for a whole one too: while it is there, no client is asked to send it again."""
    blob_path(blobs, digest).unlink(missing_ok=True)
    return OSError(errno.EIO, f"the content {digest[:12]} was damaged on the server's disk: send it again")
