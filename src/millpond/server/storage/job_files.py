"""The job files of submitted jobs, read and checked: the latest are cached, as that takes a millisecond.

A job's file never changes once it was accepted, but for one field: what was found for the job while it waited for an
image or for data (``JobStore.pin``). The start of a job takes the ``latest``. Any thread.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from millpond.model.errors import MillpondError
from millpond.server.auth.roles import absent, present
from millpond.server.store.jobs import JobStore, NewJob
from millpond.specs.job.job_file import JobFile
from millpond.specs.job.job_ids import split_member
from millpond.specs.job.job_spec import JobSpec, stored_job

T = TypeVar("T")
_MOST_REMEMBERED: Final = 1_000


@dataclass(frozen=True, slots=True)
class Accepted:
    """A job as it was accepted."""

    spec: JobSpec
    user: str
    group: str

    def member(self, index: int) -> Accepted:
        """A member of it; it is an array."""
        return Accepted(self.spec.member(index), self.user, self.group)


class JobFiles:
    """All of them, by job id."""

    def __init__(self, job_store: JobStore) -> None:
        self._job_store = job_store
        self._known: dict[str, Accepted] = {}
        self._latest: dict[str, tuple[int, Accepted]] = {}
        """With the number of changes that the store had made to files before it was read."""

    def note(self, job: str, accepted: Accepted) -> None:
        """Remember a job whose file was checked just now, and is stored as it was checked."""
        _remember(self._known, job, accepted)

    def forget(self, job: str) -> None:
        """The job was dropped."""
        self._known.pop(job, None)
        self._latest.pop(job, None)

    def file_of(self, job: str) -> JobFile:
        """A job's file as it was when it was first asked for.

        Raises:
            NotFoundError: there never was such a job.
        """
        return self._of(job).spec.file

    async def soon(self, job: str) -> JobFile:
        """The same, for those who must not wait for the store."""
        known = self._known.get(job)
        return await asyncio.to_thread(self.file_of, job) if known is None else known.spec.file

    def readable(self, jobs: Collection[str]) -> dict[str, Accepted]:
        """Many jobs by a few queries, without those whose files this version does not understand.

        What is read is not remembered: it would take the place of files that are asked for more often.
        """
        found = {job: known for job in jobs if (known := self._known.get(job)) is not None}
        for stored in self._job_store.submitted_among([job for job in jobs if job not in found]):
            with contextlib.suppress(MillpondError):
                found[stored.id] = _checked(stored)
        return found

    def live_with(self, field: str) -> dict[str, dict[str, Any]]:
        """By job, the files of those that have not ended and in which a field stands."""
        return self._job_store.live_documents_with(field)

    def latest(self, job: str) -> Accepted:
        """A job with what was found for it since it was submitted.

        Raises:
            NotFoundError: there never was such a job.
            InvalidInputError: this version no longer understands its file.
        """
        member = split_member(job)
        if member is not None:
            array = self.latest(member[0])
            if array.spec.members is None:
                raise absent("job", job)
            return array.member(member[1])
        known = self._of(job)
        if not known.spec.file.asks_for_provisions:
            return known
        changes = self._job_store.document_changes  # before the file is read, which may change meanwhile
        read_at, accepted = self._latest.get(job, (-1, known))
        if read_at != changes:
            accepted = self._read(job)
            _remember(self._latest, job, (changes, accepted))
        return accepted

    def _of(self, job: str) -> Accepted:
        known = self._known.get(job)
        if known is None:
            known = self._read(job)
            self.note(job, known)
        return known

    def _read(self, job: str) -> Accepted:
        return _checked(present(self._job_store.submitted(job), "job", job))


def _checked(stored: NewJob) -> Accepted:
    return Accepted(stored_job(stored.document), stored.user, stored.group)


def _remember(known: dict[str, T], job: str, what: T) -> None:
    """Enter it in place of what was entered first, where too much is known."""
    known[job] = what
    if len(known) > _MOST_REMEMBERED:
        known.pop(next(iter(known)), None)
