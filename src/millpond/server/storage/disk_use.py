"""Who holds how much of the server's disk, and what they may hold.

What jobs wrote counts, with their logs, and homes that the server keeps, what was sent, and datasets.

What an ended job left does not change any more and is measured once; what lives, and homes, at every look. What is
removed counts no more at once. A dataset counts with the size of its files for the user who put it, even where others
put the same content; what jobs were sent, once for all jobs of a user.

While nearly nothing is free no work is accepted: what is left, and what the store keeps within itself
(``store.connection.reserve``), is for stopping and ending jobs.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Final

from millpond.model.errors import ConflictError, UnavailableError
from millpond.node.host.folder_trees import entries_below
from millpond.node.host.identities import HOMES
from millpond.node.task.records import job_dir
from millpond.server.auth.accounts import Accounts
from millpond.server.storage.files.datasets import Datasets
from millpond.server.storage.files.partials import held_parts
from millpond.server.storage.files.sent_contents import SentContents
from millpond.server.store.jobs import JobStore
from millpond.specs.api.jobs.files import DatasetInfo
from millpond.specs.api.reports.usage import DiskInfo
from millpond.specs.quantities import size_text

MAKE_ROOM: Final = "remove what is no longer needed on the server (pond delete, pond data rm, --keep-logs-gib)"
KEPT_FOR_ENDS_BYTES: Final = 8 * 2**20
"""While less is free, nothing new is taken on."""
KEPT_FILES: Final = 1_000
"""The same of files that the file system has room for; a start takes about a dozen."""
_CHECKED_EVERY: Final = KEPT_FOR_ENDS_BYTES // 4
"""Bytes of what is sent, so that little of what is kept for ends is taken."""
_REMEDY: Final = "remove what is no longer needed (pond delete JOB, pond data rm), or have the limit raised"


@dataclass(frozen=True, slots=True)
class DiskUse:
    """Bytes on the server's disk, by user and by group."""

    users: Mapping[str, int] = field(default_factory=dict)
    groups: Mapping[str, int] = field(default_factory=dict)


class DiskBooks:
    """Measures, and knows the limits.

    Attributes:
        free: free bytes beside a path.
        free_files: files that may be made beside a path; None where the file system has no bound.
    """

    def __init__(
        self, job_store: JobStore, datasets: Datasets, state_dir: Path, accounts: Accounts, sent: SentContents
    ) -> None:
        self._job_store = job_store
        self._state_dir = state_dir
        self.free: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free
        self.free_files: Callable[[Path], int | None] = free_files
        self._accounts = accounts
        self._datasets = datasets
        self._sent = sent
        self._settled: dict[str, int] = {}
        self._living: dict[str, int] = {}
        self._measured = DiskUse()
        self._changing = Lock()

    @property
    def latest(self) -> DiskUse:
        """As measured at the last look, and what users have sent by now."""
        users, groups = Counter(self._measured.users), Counter(self._measured.groups)
        for held in (held_parts(self._state_dir), self._sent.held()):
            for user, size in held.items():
                users[user] += size
                groups[self._first_group(user)] += size
        return DiskUse(users, groups)

    def look(self) -> DiskUse:
        """Measure what has changed.

        Raises:
            DBAPIError: the store cannot be read.
        """
        users: Counter[str] = Counter()
        groups: Counter[str] = Counter()
        there = {path.name for path in (self._state_dir / "jobs").glob("*")}
        settled = {name: size for name, size in self._settled.items() if name in there}
        living: dict[str, int] = {}
        for owner in self._job_store.owners():
            name = job_dir(self._state_dir, owner.job).name
            if name not in there:
                continue
            size = settled.get(name)
            if size is None:
                size = size_of(self._state_dir / "jobs" / name)
                (settled if owner.ended else living)[name] = size
            users[owner.user] += size
            groups[owner.group] += size
        for home in (self._state_dir / HOMES).glob("*"):
            size = size_of(home)
            users[home.name] += size
            groups[self._first_group(home.name)] += size
        counted_as_sent = self._sent.pending()
        for dataset in self._datasets.all():
            if dataset.digest not in counted_as_sent:
                users[dataset.user] += dataset.size
                groups[dataset.group or self._first_group(dataset.user)] += dataset.size
        for (user, group), size in self._sent.of_jobs.items():
            users[user] += size
            groups[group] += size
        with self._changing:
            self._settled, self._living, self._measured = settled, living, DiskUse(users, groups)
        return self.latest

    def deleted(self, job: str, user: str, group: str) -> None:
        """The folder of a job is gone: whose it was holds so much less."""
        with self._changing:
            name = job_dir(self._state_dir, job).name
            size = self._settled.pop(name, 0) or self._living.pop(name, 0)
            self._take_off(user, group, size)

    def dataset_removed(self, removed: DatasetInfo) -> None:
        """A version of a dataset is gone: whose it was holds so much less. What was just sent counts until it goes
        (``Collector.drop_just_sent``).
        """
        if removed.digest in self._sent.pending():
            return
        with self._changing:
            self._take_off(removed.user, removed.group or self._first_group(removed.user), removed.size)

    def _take_off(self, user: str, group: str, size: int) -> None:
        users, groups = Counter(self._measured.users), Counter(self._measured.groups)
        users[user] = max(users[user] - size, 0)
        groups[group] = max(groups[group] - size, 0)
        self._measured = DiskUse(users, groups)

    def _first_group(self, user: str) -> str:
        first = next(iter(self._accounts.memberships(user)), None)
        return first.group if first is not None else ""

    def full(self) -> str:
        """Why nothing can be taken on at all; empty when there is room: what is left is for ends alone."""
        return fullness(self.free(self._state_dir), self.free_files(self._state_dir))

    def excess(self, user: str, group: str) -> str:
        """Whose limit is exceeded, in words; empty when none is."""
        limits = (self._accounts.limits_of_user(user), self._accounts.limits_of_group(group))
        if all(each.disk_bytes is None for each in limits):
            return ""
        for held in (self.of_user(user), self.of_group(group)):
            if held.limit_bytes is not None and held.used_bytes > held.limit_bytes:
                used, most = size_text(held.used_bytes), size_text(held.limit_bytes)
                return f"{held.kind} {held.name} holds {used} on the server's disk and may hold at most {most}"
        return ""

    def check(self, user: str, group: str) -> None:
        """Whether more of a user's may be taken on.

        Raises:
            UnavailableError: the disk is full.
            ConflictError: they, or their group, hold too much.
        """
        if full := self.full():
            raise UnavailableError(full, "what runs can be stopped (pond stop); then " + MAKE_ROOM)
        excess = self.excess(user, group)
        if excess:
            raise ConflictError(excess, _REMEDY)

    async def bounded(self, user: str, group: str, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """What a user sends, for as long as there is room for it; that was checked before.

        Raises:
            UnavailableError, ConflictError: as for ``check``, which is done now and then.
        """
        unchecked = 0
        async for piece in pieces:
            unchecked += len(piece)
            if unchecked >= _CHECKED_EVERY:
                unchecked = 0
                await asyncio.to_thread(self.check, user, group)
            yield piece

    def of_user(self, name: str) -> DiskInfo:
        """What a user holds."""
        used = self.latest.users.get(name, 0)
        return DiskInfo(
            kind="user", name=name, used_bytes=used, limit_bytes=self._accounts.limits_of_user(name).disk_bytes
        )

    def of_group(self, name: str) -> DiskInfo:
        """What a group holds."""
        used = self.latest.groups.get(name, 0)
        return DiskInfo(
            kind="group", name=name, used_bytes=used, limit_bytes=self._accounts.limits_of_group(name).disk_bytes
        )


def fullness(free: int, files: int | None) -> str:
    """Why nothing can be taken on beside so many free bytes, and files that may be made; empty where it can."""
    if free < KEPT_FOR_ENDS_BYTES:
        return f"the server's disk is full: {size_text(free)} are free"
    if files is not None and files < KEPT_FILES:
        return f"the server's disk is full: it has room for {files} more files"
    return ""


def free_files(path: Path) -> int | None:
    """How many files may be made beside a path; None where the file system has no bound."""
    found = os.statvfs(path)
    return found.f_favail if found.f_files else None


def size_of(folder: Path) -> int:
    """Bytes that all in a folder takes on disk."""
    return sum(entry.status.st_blocks * 512 for entry in entries_below(folder))
