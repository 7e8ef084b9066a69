"""What the API can be asked about files: contents, datasets and outputs. What is no coroutine blocks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

from millpond.model.errors import ConflictError, InvalidInputError, NotFoundError, UnavailableError
from millpond.model.folders import LARGEST_BATCH, digest_of
from millpond.model.hardware.nodes import DEFAULT_POOL
from millpond.node.host.identities import MachineAccount
from millpond.node.task.records import attempt_dir
from millpond.server.auth.roles import AccessTarget, Caller, Verb, demand, first_group, own_target
from millpond.server.storage.files.admission import CopyOf, FileAdmission, complete_snapshot
from millpond.server.storage.files.blobs import BlobStore, Incoming
from millpond.server.storage.files.collector import Collector
from millpond.server.storage.files.datasets import Dataset, Datasets
from millpond.server.storage.files.mounts import FolderRules
from millpond.server.storage.files.outputs import (
    OpenedFile,
    OutputGlimpse,
    check_not_removed,
    first_batch,
    glimpse_output,
    list_output,
    open_output,
    open_result,
    read_metrics,
)
from millpond.server.storage.files.partials import KEPT_S, Partials
from millpond.server.storage.files.run_files import RunFiles
from millpond.server.storage.files.sent_contents import SentContents
from millpond.server.store.store import Store
from millpond.specs.api.jobs.files import BlobProgress, DatasetInfo, MetricsInfo, OutputList, Visibility, read_batch
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.job.dataset_refs import DatasetRef
from millpond.specs.job.job_file import JobFile
from millpond.specs.job.snapshots import FileEntry, FolderSnapshot, read_snapshot

LARGEST_BLOB: Final = 64 * 2**30
SILENCE_S: Final = 120.0
"""Who sends nothing for so long is gone."""
_PIECE: Final = 2**20
_SNAPSHOTS_REMEMBERED: Final = 4
"""Of datasets whose files are fetched: to read that of 10,000 files takes longer than to give out a file."""


@dataclass(frozen=True, slots=True)
class Span:
    """The rest of a content, from its byte ``first`` on; ``total``: bytes of all of it; None: not known."""

    first: int = 0
    total: int | None = None


class FileService:
    """Everything about files of one state directory.

    Attributes:
        sent: for whom contents count.

    Args:
        rules_of: which folders jobs of a pool may read and write.
        copy_of: as in ``FileAdmission``.
    """

    def __init__(self, state_dir: Path, store: Store, rules_of: Callable[[str], FolderRules], copy_of: CopyOf) -> None:
        self._state_dir = state_dir = state_dir.resolve()
        self._store = store
        self._blobs = BlobStore(state_dir)
        self._partials = Partials(state_dir)
        self._datasets = Datasets(store.database)
        self._admission = FileAdmission(state_dir, self._blobs, self._datasets, rules_of, copy_of)
        self.sent = SentContents(state_dir)
        self.collector = Collector(state_dir, store.jobs, self._blobs, self._datasets, self.sent)
        self.collector.also(lambda now: self._partials.collect(now - KEPT_S))
        self.workspace = self._admission.workspace
        self.is_listed = rules_of(DEFAULT_POOL).is_listed
        self.missing = self._blobs.missing
        self._entries_of = lru_cache(_SNAPSHOTS_REMEMBERED)(self._read_entries)

    def run_files(self, file_of: Callable[[str], JobFile]) -> RunFiles:
        """What runs in pods are given, and leave.

        Args:
            file_of: gives the file of a job.
        """
        return RunFiles(self._state_dir, self._blobs, lambda job: self.workspace(file_of(job)))

    async def admit(
        self, file: JobFile, document: dict[str, Any], caller: Caller, identity: MachineAccount | None
    ) -> dict[str, Any]:
        """A submission's document, once all its files are here; see ``FileAdmission.admit``."""
        if file.ship or file.payload or file.data or file.output:
            return await asyncio.to_thread(self._admission.admit, file, document, caller, identity)
        return document

    def progress(self, user: str, digest: str) -> BlobProgress:
        """How much of a content is here of a user's."""
        if not self._blobs.missing([digest]):
            return BlobProgress(digest=digest, whole=True, received=self._blobs.size(digest) or 0)
        return self._partials.progress(user, digest)

    async def receive(self, user: str, digest: str, span: Span, pieces: AsyncIterator[bytes]) -> None:
        """Take a content in, or the rest of one; what is cut off is kept for a day, so that it can go on.

        Args:
            user: for whom it counts until a job or a dataset does.

        Raises:
            InvalidInputError: it is another than was announced, or too large.
            ConflictError: what lies before the span is not here, or another request adds to it.
            UnavailableError: there is no room for it, or not all of it came.
        """
        if (span.total or 0) > LARGEST_BLOB:
            raise InvalidInputError(f"a content of more than {LARGEST_BLOB // 2**30} GiB", "divide it")
        try:
            with self._partials.receive(user, digest, span.first, LARGEST_BLOB) as incoming:
                await asyncio.to_thread(incoming.catch_up)
                await _fill(incoming, pieces)
                if span.total is not None and incoming.size < span.total:
                    raise EOFError
                await asyncio.to_thread(self._finish, user, digest, incoming)
        except (EOFError, TimeoutError) as error:
            raise UnavailableError(
                f"not all of the content {digest[:12]} came", "go on with it where it ended"
            ) from error

    def _finish(self, user: str, digest: str, incoming: Incoming) -> None:
        is_new = self._blobs.size(digest) is None
        incoming.finish()
        if is_new:
            self.sent.note(user, [(digest, incoming.size)])

    async def receive_batch(self, user: str, pieces: AsyncIterator[bytes]) -> list[str]:
        """Take many small contents in; returns their digests, in their order.

        Args:
            user: as for ``receive``.

        Raises:
            InvalidInputError: it is no batch, or too large; what was whole of it may have been kept.
            UnavailableError: there is no room for it.
        """
        data = bytearray()
        async for piece in pieces:
            data += piece
            if len(data) > LARGEST_BATCH:
                raise InvalidInputError(
                    f"a batch of more than {LARGEST_BATCH // 2**20} MiB", "send its contents in several"
                )
        return await asyncio.to_thread(self._keep, user, read_batch(bytes(data)))

    def _keep(self, user: str, contents: Sequence[bytes]) -> list[str]:
        digests = [digest_of(content) for content in contents]
        fresh = {digest: len(content) for digest, content in zip(digests, contents, strict=True)}
        fresh = {digest: size for digest, size in fresh.items() if self._blobs.size(digest) is None}
        for content in contents:
            self._blobs.keep(content)
        self.sent.note(user, list(fresh.items()))
        return digests

    def put_dataset(self, name: str, snapshot: str, caller: Caller, visibility: Visibility | None) -> DatasetInfo:
        """The next version of a dataset, or the latest if nothing has changed.

        Args:
            visibility: of all versions from now on; None: as it was, or, for the first, that of the caller's group.

        Raises:
            InvalidInputError: not everything of the snapshot was sent.
            NotAllowedError, NotFoundError: it is another user's by now.
        """
        found = complete_snapshot(self._blobs, snapshot)
        if not found.files:
            raise InvalidInputError("a dataset without files", "name a folder with files in it")
        with self._datasets.changing:
            demand(caller, Verb.CHANGE_DATA, self.target(name, caller))  # another user's, perhaps, since it was asked
            latest = next((each for each in self._datasets.all() if each.name == name), None)
            group = first_group(caller) if latest is None else latest.group
            seen: Visibility = visibility or ("group" if latest is None else latest.visibility)
            files, now = len(found.files), time.time()
            put = Dataset(name, 0, snapshot, files, found.size, caller.user, now, group=group, visibility=seen)
            added = self._datasets.add(put)
            if latest is not None and visibility is not None and visibility != latest.visibility:
                self._datasets.share(name, visibility)
                added = self._datasets.find(name, added.version)
        return _dataset_info(added)

    def datasets(self, sees: Callable[[AccessTarget], bool]) -> list[DatasetInfo]:
        """Every version of every dataset that a user may see."""
        return [_dataset_info(found) for found in self._datasets.all() if sees(found.seen)]

    def snapshot(self, ref: DatasetRef, caller: Caller) -> FolderSnapshot:
        """What is in a version of a dataset.

        Raises:
            NotFoundError: it is not here, or not for them.
        """
        return read_snapshot(self._blobs.read(self._datasets.seen_by(caller, ref).digest))

    def dataset_file(self, ref: DatasetRef, path: str, caller: Caller) -> OpenedFile:
        """One file of it.

        Raises:
            NotFoundError: as for ``snapshot``, or it has no such file.
        """
        return self._open_in(ref, caller)(path)

    def dataset_batch(self, ref: DatasetRef, paths: Sequence[str], caller: Caller) -> bytes:
        """The first of some files of it; see ``first_batch``.

        Raises:
            NotFoundError: as for ``snapshot``.
        """
        return first_batch(self._open_in(ref, caller), paths)

    def _open_in(self, ref: DatasetRef, caller: Caller) -> Callable[[str], OpenedFile]:
        entries = self._entries_of(self._datasets.seen_by(caller, ref).digest)

        def open_one(path: str) -> OpenedFile:
            entry = entries.get(path)
            if entry is None:
                raise NotFoundError(f"no file {path!r} in {ref}", "see what is in it: GET /datasets/NAME/VERSION/files")
            return OpenedFile(self._blobs.open(entry.digest), entry.size, entry.digest)

        return open_one

    def _read_entries(self, snapshot: str) -> dict[str, FileEntry]:
        return {entry.path: entry for entry in read_snapshot(self._blobs.read(snapshot)).files}

    def target(self, name: str, caller: Caller) -> AccessTarget:
        """A dataset as what a verb is applied to; the caller's own, and their group's, where there is none."""
        found = next((each.target for each in self._datasets.all() if each.name == name), None)
        return found or own_target("dataset", name, caller)

    def share_dataset(self, name: str, visibility: Visibility) -> DatasetInfo:
        """Let others see all versions of a dataset, or no more.

        Raises:
            NotFoundError: there is none.
        """
        with self._datasets.changing:
            self._datasets.find(name)
            self._datasets.share(name, visibility)
            return _dataset_info(self._datasets.find(name))

    def remove_dataset(self, name: str, version: int) -> DatasetInfo:
        """Forget a version.

        Raises:
            NotFoundError: it is not here.
            ConflictError: a job that has not ended reads it.
        """
        found = self._datasets.find(name, version)
        living = self._store.jobs.live_documents_with("data").values()
        if any(found.reference in document["data"].values() for document in living):
            raise ConflictError(f"a job that has not ended reads {found.reference}", "wait for its end, or stop it")
        self._datasets.remove(found)
        return _dataset_info(found)

    def outputs(self, info: JobInfo, attempt: int | None, under: str) -> OutputList:
        """What an attempt left, or what of it is a file or folder ``under``."""
        number = attempt_of(info, attempt)
        return list_output(self._output(info, number), info.id, number, under)

    def glimpse(self, info: JobInfo, attempt: int | None) -> OutputGlimpse:
        """The newest of it."""
        number = attempt_of(info, attempt)
        return glimpse_output(self._output(info, number), number)

    def output(self, info: JobInfo, attempt: int | None, path: str) -> OpenedFile:
        """One file of it."""
        return open_output(self._output(info, attempt_of(info, attempt)), path)

    def output_batch(self, info: JobInfo, attempt: int | None, paths: Sequence[str]) -> bytes:
        """The first of some files of it; see ``first_batch``."""
        return first_batch(partial(open_output, self._output(info, attempt_of(info, attempt))), paths)

    def metrics(self, info: JobInfo, attempt: int | None, task: int | None, last: int) -> MetricsInfo:
        """What an attempt's tasks reported."""
        return read_metrics(self._state_dir, info, attempt_of(info, attempt), _task(info, task), last)

    def result(self, info: JobInfo, attempt: int | None, task: int) -> OpenedFile:
        """What a task's function returned."""
        number = attempt_of(info, attempt)
        _task(info, task)
        return open_result(self._state_dir, info, number, task)

    def _output(self, info: JobInfo, attempt: int) -> Path:
        check_not_removed(self._state_dir, info.id)
        return attempt_dir(self._state_dir, info.id, attempt)


async def _fill(incoming: Incoming, pieces: AsyncIterator[bytes]) -> None:
    """Write what comes, in pieces that are worth a write.

    Raises:
        TimeoutError: nothing came for long.
    """
    waiting = bytearray()
    try:
        while True:
            async with asyncio.timeout(SILENCE_S):
                piece = await anext(pieces, None)
            if piece is None:
                break
            incoming.heard()
            waiting += piece
            if len(waiting) >= _PIECE:
                whole = bytes(waiting)
                waiting.clear()
                await asyncio.to_thread(incoming.write, whole)
    finally:
        incoming.write(bytes(waiting))


def attempt_of(info: JobInfo, attempt: int | None) -> int:
    """The attempt that is meant: the last one unless said otherwise.

    Raises:
        NotFoundError: there is none of this number.
    """
    if attempt is not None and attempt > max(info.attempt, 1):
        raise NotFoundError(f"job {info.id!r} has no attempt {attempt}", f"attempts are 1 to {info.attempt}")
    return max(info.attempt, 1) if attempt is None else attempt


def _task(info: JobInfo, task: int | None) -> int | None:
    if task is not None and task >= len(info.tasks):
        raise NotFoundError(f"job {info.id!r} has no task {task}", f"tasks are 0 to {len(info.tasks) - 1}")
    return task


def _dataset_info(found: Dataset) -> DatasetInfo:
    return DatasetInfo(
        name=found.name,
        version=found.version,
        reference=found.reference,
        digest=found.digest,
        files=found.files,
        size=found.size,
        user=found.user,
        created_at=found.created_at,
        group=found.group,
        visibility=found.visibility,
    )
