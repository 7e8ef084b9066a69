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
from millpond.node.host.periodic_worker import EXPECTED, Periodic, PeriodicWorker
from millpond.node.task.records import attempt_dir
from millpond.node.task.workspace import PAYLOAD, WORK
from millpond.server.storage.files.admission import DATASETS_FOLDER
from millpond.server.storage.files.blobs import BlobStore, Collected
from millpond.server.storage.files.datasets import Datasets
from millpond.server.store.jobs import JobStore
from millpond.specs.job.snapshots import is_digest, read_snapshot

log = logging.getLogger(__name__)

EVERY_S: Final = 3_600.0
SPARED_S: Final = 3_600.0
"""What was sent or asked for so recently is spared: the submission that refers to it may still be on its way. So is the
copy of a job that ended so recently: a user may be looking what went wrong."""


class Collector(Periodic):
    """Collects in a thread of its own."""

    def __init__(self, state_dir: Path, job_store: JobStore, blobs: BlobStore, datasets: Datasets) -> None:
        self._state_dir = state_dir
        self._laid_out = state_dir / DATASETS_FOLDER
        self._job_store = job_store
        self._blobs = blobs
        self._datasets = datasets
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
        self.collect(now)
        for collect in self._others:
            collect(now)

    def collect(self, now: float) -> Collected:
        """Remove what nothing refers to.

        Args:
            now: seconds since 1970.
        """
        self._drop_copies(now)
        used = {dataset.digest for dataset in self._datasets.all()}
        self._drop_folders(used)
        roots = used | {
            document[field]
            for field in ("ship", "payload")
            for document in self._job_store.documents_with(field)
            if isinstance(document.get(field), str) and is_digest(document[field])
        }
        found = self._blobs.collect(frozenset(roots | self._contents(roots)), now - SPARED_S)
        if found.blobs:
            log.info("removed %d contents that nothing refers to, %d MiB", found.blobs, found.size // 2**20)
        return found

    def _contents(self, roots: set[str]) -> set[str]:
        """What the snapshots among the roots list; a payload lists nothing."""
        contents: set[str] = set()
        for digest in roots:
            try:
                contents.update(entry.digest for entry in read_snapshot(self._blobs.read(digest)).files)
            except MillpondError:
                continue  # a payload, or gone with a job whose folder was damaged
        return contents

    def _drop_folders(self, used: set[str]) -> None:
        """Datasets that were removed are laid out no longer; none that a living job reads can have been removed."""
        for folder in self._laid_out.glob("*"):
            if is_digest(folder.name) and folder.name not in used:
                remove_tree(folder)

    def _drop_copies(self, now: float) -> None:
        """What ended jobs were sent; their logs, outputs, metrics and results stay."""
        for job in self._job_store.ended_with(("ship", "payload"), now - SPARED_S):
            for folder in attempt_dir(self._state_dir, job, 1).parent.glob("attempt-*"):
                (folder / PAYLOAD).unlink(missing_ok=True)
                if (folder / WORK).is_dir() and not (folder / WORK).is_symlink():
                    remove_tree(folder / WORK)
