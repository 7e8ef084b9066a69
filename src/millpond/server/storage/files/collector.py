"""Removes what is no longer needed: contents that no job kept and no dataset refers to, datasets that were removed,
and the copies that ended jobs ran in. At start, and then every hour.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import SubprocessError
from typing import Final

from millpond.model.errors import MillpondError
from millpond.node.host.folder_trees import remove_tree
from millpond.node.host.periodic_worker import EXPECTED, Periodic, PeriodicWorker, for_each
from millpond.node.task.records import attempt_dir
from millpond.node.task.workspace import PAYLOAD, WORK, clear_dataset
from millpond.server.storage.files.admission import DATASETS_FOLDER
from millpond.server.storage.files.blobs import BLOCK_BYTES, BlobStore, Collected
from millpond.server.storage.files.datasets import Datasets
from millpond.server.storage.files.sent_contents import SentContents
from millpond.server.store.jobs import JobStore
from millpond.specs.api.jobs.files import DatasetInfo
from millpond.specs.job.snapshots import LARGEST_SNAPSHOT_TEXT, is_digest, read_snapshot

log = logging.getLogger(__name__)

EVERY_S: Final = 3_600.0
SPARED_S: Final = 3_600.0
"""What was sent or asked for so recently is spared: the submission that refers to it may still be on its way. So is the
copy of a job that ended so recently: a user may be looking what went wrong."""


class Collector(Periodic):
    """Collects in a thread of its own."""

    def __init__(
        self, state_dir: Path, job_store: JobStore, blobs: BlobStore, datasets: Datasets, sent: SentContents
    ) -> None:
        self._state_dir = state_dir
        self._laid_out = state_dir / DATASETS_FOLDER
        self._job_store = job_store
        self._blobs = blobs
        self._datasets = datasets
        self._sent = sent
        self._others: list[Callable[[float], None]] = []
        self._worker = PeriodicWorker(
            "collector",
            lambda: self.tidy(time.time()),
            EVERY_S,
            "not all could be collected; the next try is in an hour",
            (*EXPECTED, SubprocessError),
        )

    def also(self, collect: Callable[[float], None]) -> None:
        """Have something else tidied up each time; it is given seconds since 1970."""
        self._others.append(collect)

    def tidy(self, now: float) -> None:
        """Remove all that is not needed; seconds since 1970."""

        def tidied(collect: Callable[[float], object]) -> None:
            collect(now)

        for_each((self.collect, *self._others), tidied)

    def collect(self, now: float) -> Collected:
        """Remove what nothing refers to.

        Args:
            now: seconds since 1970.
        """
        try:
            return self._collect_contents(now)
        finally:
            for_each(
                self._job_store.ended_with(("ship", "payload"), now - SPARED_S),
                lambda job: _drop_copies(self._state_dir, job),
            )

    def drop_just_sent(self, removed: DatasetInfo) -> None:
        """Remove at once what was sent for a version of a dataset, and counts for its sender, as that is removed.

        What something refers to stays, and what was asked for since the version was put: a submission that refers to
        it may be on its way.
        """
        pending = self._sent.pending()
        if removed.digest not in pending:
            return
        kept = self._in_datasets().union(*self._owned_by_jobs().values())
        dropped = self._blobs.drop((self._listed(removed.digest).keys() & pending) - kept, removed.created_at)
        self._sent.settle(lambda digest: digest not in dropped)

    def _collect_contents(self, now: float) -> Collected:
        self._drop_folders({dataset.digest for dataset in self._datasets.all()})
        owned = self._owned_by_jobs()
        self._sent.of_jobs = {owner: sum(sizes.values()) for owner, sizes in owned.items()}
        kept = self._in_datasets().union(*owned.values())
        found = self._blobs.collect(kept, self._sent.pending(), now, SPARED_S)
        self._sent.settle(lambda digest: digest not in kept and self._blobs.size(digest) is not None)
        if found.blobs:
            log.info("removed %d contents that nothing refers to, %d MiB", found.blobs, found.size // 2**20)
        return found

    def _in_datasets(self) -> set[str]:
        return set[str]().union(*map(self._listed, {dataset.digest for dataset in self._datasets.all()}))

    def _owned_by_jobs(self) -> dict[tuple[str, str], dict[str, int]]:
        """What stored jobs refer to; each content counts once for all jobs of a user in a group."""
        owned: dict[tuple[str, str], dict[str, int]] = {}
        for user, group, digest in self._job_store.sent_roots("ship"):
            if is_digest(digest) and digest not in owned.setdefault((user, group), {}):
                owned[user, group].update(self._listed(digest))
        for user, group, digest in self._job_store.sent_roots("payload"):
            if is_digest(digest):
                owned.setdefault((user, group), {})[digest] = max(self._blobs.size(digest) or 0, BLOCK_BYTES)
        return owned

    def _listed(self, snapshot: str) -> dict[str, int]:
        """A snapshot and what it lists, with their sizes."""
        size = max(self._blobs.size(snapshot) or 0, BLOCK_BYTES)
        if size > LARGEST_SNAPSHOT_TEXT:
            return {snapshot: size}  # it is none
        try:
            files = read_snapshot(self._blobs.read(snapshot)).files
        except MillpondError:
            return {snapshot: size}  # damaged, or gone with a job whose folder was
        return {snapshot: size, **{entry.digest: max(entry.size, BLOCK_BYTES) for entry in files}}

    def _drop_folders(self, used: set[str]) -> None:
        """Datasets that were removed are laid out no longer; none that a living job reads can have been removed. Nor
        does what a killed supervisor was laying out stay."""
        names = {path.name.partition(".")[0] for path in self._laid_out.glob("*")}
        for_each(sorted(filter(is_digest, names)), lambda name: clear_dataset(self._laid_out, name, name in used))


def _drop_copies(state_dir: Path, job: str) -> None:
    """What an ended job was sent; its logs, outputs, metrics and results stay."""
    for folder in attempt_dir(state_dir, job, 1).parent.glob("attempt-*"):
        (folder / PAYLOAD).unlink(missing_ok=True)
        if (folder / WORK).is_dir() and not (folder / WORK).is_symlink():
            remove_tree(folder / WORK)
