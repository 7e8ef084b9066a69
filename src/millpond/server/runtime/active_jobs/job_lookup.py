"""Find the view of any job: the current one, or the last one of an ended job."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from millpond.server.auth.roles import present
from millpond.server.runtime.active_jobs.array import array_named
from millpond.server.runtime.active_jobs.arrays import Arrays
from millpond.server.runtime.active_jobs.job_cache import JobCache, cancelled_view, view_before_start
from millpond.server.store.jobs import JobStore
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.job.arrays import parse_members
from millpond.specs.job.job_ids import member_id, split_member
from millpond.specs.job.job_spec import stored_job


class JobLookup:
    """Finds living jobs, ended ones, and members of arrays that wait for their turn. Any thread.

    Args:
        job_cache: the views of jobs that have not ended.
        arrays: knows the members that are not in the cache yet.
    """

    def __init__(self, job_cache: JobCache, job_store: JobStore, arrays: Arrays) -> None:
        self._job_cache = job_cache
        self._job_store = job_store
        self._arrays = arrays

    def find(self, job: str) -> JobInfo | None:
        """A job; None when there never was such a job."""
        if not job.isprintable():  # no id ever was, and a database may refuse to look for it
            return None
        found = self._job_cache.get(job) or self._job_store.ended_job(job) or self._arrays.unsubmitted(job)
        found = found or _never_submitted(job, self._job_store)
        if found is not None:
            return found
        # A member that is being handed over is not among the waiting any more, and not in the cache yet.
        before = self._arrays.as_unsubmitted(job)
        return before and (self._job_cache.get(job) or self._job_store.ended_job(job) or before)

    def look(self, job: str) -> JobInfo:
        """A job.

        Raises:
            NotFoundError: there never was such a job.
        """
        return present(self.find(job), "job", job)

    async def soon(self, job: str) -> JobInfo:
        """As ``look``, without blocking the caller's event loop."""
        info = self._job_cache.get(job)
        return await asyncio.to_thread(self.look, job) if info is None else info

    def look_at_one(self, job: str) -> JobInfo:
        """A job that has tasks of its own.

        Raises:
            NotFoundError: there never was such a job.
            InvalidInputError: it is an array.
        """
        info = self.look(job)
        if info.array is not None:
            raise array_named(job, info.array)
        return info

    def live(self, job: str) -> JobInfo | None:
        """A job that has not ended; does not block."""
        return self._job_cache.get(job)

    def live_beginning_with(self, prefix: str) -> list[JobInfo]:
        """The jobs that have not ended whose ids begin so, members of arrays left out; does not block."""
        return [info for info in self._job_cache.newest_first() if info.id.startswith(prefix) and not info.parent]

    def live_named(self, name: str) -> list[JobInfo]:
        """The jobs of this name that have not ended, the newest first, members of arrays left out; does not block."""
        return [info for info in self._job_cache.newest_first() if info.name == name and not info.parent]

    async def jobs_before(self, info: JobInfo) -> list[str]:
        """Which jobs a job comes after; a member of an array comes after none by itself."""
        submitted = None if info.parent else await asyncio.to_thread(self._job_store.submitted, info.id)
        return [] if submitted is None else stored_job(submitted.document).file.after.jobs

    async def document(self, job: str) -> dict[str, Any]:
        """The job file that a job was submitted with."""
        await asyncio.to_thread(self.look, job)
        return await asyncio.to_thread(self._job_store.document, job) or {}


def _never_submitted(job: str, job_store: JobStore) -> JobInfo | None:
    """A member whose array ended before its turn; None when it is no such member."""
    member = split_member(job)
    array = None if member is None else job_store.ended_job(member[0])
    if member is None or array is None or array.array is None or job != member_id(*member):
        return None
    document = job_store.document(member[0])
    if document is None or parse_members(array.array.indices).position(member[1]) is None or job_store.is_job(job):
        return None
    template = replace(stored_job(document).to_job(job, array.user), group=array.group)
    before = view_before_start(template, array.submitted_at)
    return cancelled_view(before, array.ended_at or array.submitted_at, "its array ended before its turn")
