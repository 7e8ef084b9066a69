"""Check the files of a submission: that all it refers to exists, and that it may use it.

Asked once when a job is submitted, and again when an attempt starts, as links and the configuration may have changed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from millpond.model.errors import InvalidInputError, NotFoundError
from millpond.model.folders import why_too_deep
from millpond.node.host.identities import MachineAccount
from millpond.node.task.workspace import DataMount, Workspace
from millpond.server.auth.roles import Caller
from millpond.server.storage.files.blobs import BlobStore
from millpond.server.storage.files.datasets import Datasets
from millpond.server.storage.files.mounts import FolderRules
from millpond.specs.job.dataset_refs import dataset_ref
from millpond.specs.job.job_file import JobFile
from millpond.specs.job.snapshots import LARGEST_SNAPSHOT_TEXT, FolderSnapshot, read_snapshot

DATASETS_FOLDER = "datasets"

CopyOf = Callable[[str, Path | None], Path | None]


class FileAdmission:
    """Checks what jobs refer to.

    Args:
        state_dir: where contents and datasets lie.
        copy_of: says where a copy in the data cache lies; given an original, None if it is not a copy of that.
    """

    def __init__(
        self,
        state_dir: Path,
        blobs: BlobStore,
        datasets: Datasets,
        rules_of: Callable[[str], FolderRules],
        copy_of: CopyOf,
    ) -> None:
        self._state_dir = state_dir
        self._blobs = blobs
        self._datasets = datasets
        self._rules_of = rules_of
        self._copy_of = copy_of

    def admit(
        self, file: JobFile, document: dict[str, Any], caller: Caller, identity: MachineAccount | None
    ) -> dict[str, Any]:
        """The document as it is stored: every dataset with its version.

        Args:
            identity: whom the job's tasks run as; None: as the server does.

        Raises:
            InvalidInputError: something that it refers to was not sent, or its queue's jobs may not have it.
            NotFoundError: it names a dataset that is not here, or not for the caller.
        """
        if file.ship is True:
            raise InvalidInputError(
                "the working directory was not sent (ship: true)", "submit it with `pond submit`, `pond run` or the SDK"
            )
        if isinstance(file.ship, str):
            complete_snapshot(self._blobs, file.ship)
        if file.payload is not None and self._blobs.missing([file.payload]):
            raise InvalidInputError(f"the payload {file.payload[:12]} was not sent", "send it first")
        if file.output is not None:
            self._rules_of(file.pool).writable(file.queue, file.output, identity)
        data = {}
        for name, source in file.data.items():
            ref = dataset_ref(source)
            if ref is None:
                self._rules_of(file.pool).readable(file.queue, source, identity)
                data[name] = source
            else:
                data[name] = self._datasets.seen_by(caller, ref).reference
        return {**document, "data": data} if data else document

    def workspace(self, file: JobFile, identity: MachineAccount | None = None) -> Workspace:
        """What an attempt's folder is made of.

        Args:
            identity: as in ``admit``.

        Raises:
            InvalidInputError, NotFoundError: what was allowed at submission is no more, or is gone.
        """
        mounts, rules = [], self._rules_of(file.pool)
        for name, source in file.data.items():
            ref = dataset_ref(source)
            copy = file.pinned.data.get(name) if file.pinned is not None else None
            if copy and identity is None:
                mounts.append(DataMount(name, path=str(self._copy_of(copy, None)), copied=True))
            elif ref is None:
                found = rules.readable(file.queue, source, identity)
                # The server made the copy: who could not read the original does not get it, nor that of another.
                near = self._copy_of(copy, found) if copy else None
                mounts.append(DataMount(name, path=str(near or found), copied=near is not None))
            else:
                mounts.append(DataMount(name, snapshot=self._datasets.find(ref.name, ref.version).digest))
        return Workspace(
            blobs=str(self._blobs.folder),
            datasets=str(self._state_dir / DATASETS_FOLDER),
            snapshot=file.ship if isinstance(file.ship, str) else "",
            payload=file.payload or "",
            data=tuple(mounts),
            output="" if file.output is None else str(rules.writable(file.queue, file.output, identity)),
        )


def complete_snapshot(blobs: BlobStore, digest: str) -> FolderSnapshot:
    """A snapshot of which every content is here.

    Raises:
        InvalidInputError: it, or a file of it, was not sent; or it is no snapshot.
    """
    size = blobs.size(digest)
    if size is None:
        raise InvalidInputError(f"the snapshot {digest[:12]} was not sent", "send the folder first")
    if size > LARGEST_SNAPSHOT_TEXT:
        raise InvalidInputError(f"{digest[:12]} is too large for a snapshot", "send fewer files")
    try:
        snapshot = read_snapshot(blobs.read(digest))
    except NotFoundError as error:
        raise InvalidInputError(error.cause, error.remedy) from error
    except InvalidInputError:
        blobs.remove_damaged(digest)
        raise
    for path in (*(entry.path for entry in snapshot.files), *(entry.path for entry in snapshot.links)):
        if why := why_too_deep(path):
            raise InvalidInputError(why, "move it up, or leave it out")
    absent = set(blobs.missing([digest, *{entry.digest for entry in snapshot.files}]))
    lacking = [entry.path for entry in snapshot.files if entry.digest in absent]
    if lacking:
        more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        raise InvalidInputError(f"the file {lacking[0]}{more} of the snapshot was not sent", "send the folder again")
    wrong = [entry for entry in snapshot.files if blobs.size(entry.digest) != entry.size]
    if wrong:
        for entry in wrong:
            blobs.remove_damaged(entry.digest)
        raise InvalidInputError(
            f"the size of {wrong[0].path} in the snapshot is not that of its content", "send it again"
        )
    return snapshot
