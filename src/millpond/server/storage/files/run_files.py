"""The files of runs in pods: what is given to the pods of a run, and what their tasks bring back.

What is brought back comes as contents and a snapshot, as folders do from anywhere, and lies then where the output of a
task of this machine would. Outputs are links to contents, which cost no second place on the disk: nothing here ever
writes into either. Of a gang, what several tasks leave at one path is that of the last.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final

from millpond.model.errors import InvalidInputError, NotFoundError
from millpond.model.folders import LARGEST_BATCH, MOST_BATCHED, batch_of
from millpond.node.host.files import read_json, write_json
from millpond.node.task.records import TaskFiles, TaskId
from millpond.node.task.workspace import OUTPUT, Workspace, blob_path, copy_content, make_output
from millpond.server.storage.files.admission import complete_snapshot
from millpond.server.storage.files.blobs import BlobStore
from millpond.server.storage.files.outputs import OpenedFile
from millpond.specs.job.snapshots import read_snapshot

_SNAPSHOTS_REMEMBERED: Final = 32


class RunFiles:
    """What runs of one state directory have and leave.

    Args:
        workspace_of: what a job's runs are given.
    """

    def __init__(self, state_dir: Path, blobs: BlobStore, workspace_of: Callable[[str], Workspace]) -> None:
        self._state_dir = state_dir
        self._blobs = blobs
        self._workspace_of = workspace_of
        self._lock = threading.Lock()
        self._in_snapshot = lru_cache(_SNAPSHOTS_REMEMBERED)(self._read_digests)

    # ---- into pods ------------------------------------------------------------------------------------------------

    def content(self, job: str, digest: str) -> OpenedFile:
        """One of the contents that a job's runs are given.

        Raises:
            NotFoundError: it is none of these.
        """
        self._check(job, (digest,))
        file = self._blobs.open(digest)
        return OpenedFile(file, os.fstat(file.fileno()).st_size, digest)

    def batch(self, job: str, digests: list[str]) -> bytes:
        """Several small ones, in their order.

        Raises:
            NotFoundError: one is none of these.
            InvalidInputError: they are too many, or too large.
        """
        self._check(job, digests)
        sizes = [self._blobs.size(digest) or 0 for digest in digests]
        if len(digests) > MOST_BATCHED or sum(sizes) + 8 * len(sizes) > LARGEST_BATCH:
            raise InvalidInputError("too much is asked for at once", "ask for less")
        return batch_of(self._blobs.read(digest) for digest in digests)

    def _check(self, job: str, digests: Iterable[str]) -> None:
        workspace = self._workspace_of(job)
        snapshots = [each for each in (workspace.snapshot, *(mount.snapshot for mount in workspace.data)) if each]
        given = {workspace.payload, *snapshots}
        for digest in digests:
            if digest not in given and not any(digest in self._in_snapshot(each) for each in snapshots):
                raise NotFoundError(f"the content {digest[:12]} is none of job {job!r}", "see its job file")

    def _read_digests(self, snapshot: str) -> frozenset[str]:
        return frozenset(entry.digest for entry in read_snapshot(self._blobs.read(snapshot)).files)

    # ---- out of pods ----------------------------------------------------------------------------------------------

    def take_output(self, task: TaskId, digest: str, result: str) -> None:
        """Have what a task leaves be as in a snapshot.

        Args:
            result: the content that its function returned; empty: none.

        Raises:
            InvalidInputError: something of it was not sent, or it does not go with what other tasks left.
            OSError: the disk is full.
        """
        snapshot, files = complete_snapshot(self._blobs, digest), TaskFiles.of(self._state_dir, task)
        folder = files.record.parent / OUTPUT
        with self._lock:
            make_output(files.record.parent)
            known = files.record.with_suffix(".carried")
            before: dict[str, str] = read_json(known) or {}
            now = {entry.path: entry.digest for entry in snapshot.files}
            for path in before.keys() - now.keys():
                _remove(folder, path)
            try:
                for path, content in now.items():
                    if before.get(path) != content or not (folder / path).exists():
                        self._place(content, folder / path, files.record.with_suffix(".tmp"))
            except (IsADirectoryError, NotADirectoryError, FileExistsError) as error:
                raise InvalidInputError(
                    f"several tasks left different things at {path}", "have each task write to a folder of its own"
                ) from error
            if result:
                self._place(result, files.result, files.record.with_suffix(".tmp"))
            write_json(known, now)

    def take_metrics(self, task: TaskId, first: int, lines: bytes) -> int:
        """Append what a task reported of itself; returns how many bytes of that are here.

        Args:
            first: how many were here before; where that is not so, nothing is taken.
        """
        path = TaskFiles.of(self._state_dir, task).metrics
        with self._lock:
            make_output(path.parent.parent)
            with path.open("ab") as file:
                if file.tell() == first:
                    file.write(lines)
                return file.tell()

    def _place(self, digest: str, place: Path, fresh: Path) -> None:
        """Have a content at a place, at once as a whole."""
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh.unlink(missing_ok=True)
        try:
            os.link(blob_path(self._blobs.folder, digest), fresh)
        except OSError:  # a file system without links, or too many of them
            copy_content(self._blobs.folder, digest, fresh, 0o600)
        fresh.replace(place)


def _remove(folder: Path, path: str) -> None:
    """A file that is no more, and the folders that have nothing left in them."""
    with suppress(OSError):
        (folder / path).unlink(missing_ok=True)
        for above in (folder / path).parents:
            if above == folder:
                return
            above.rmdir()
