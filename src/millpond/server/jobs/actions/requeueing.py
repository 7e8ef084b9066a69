"""Requeue jobs: a running job is ended and waits for another run; an ended job is submitted again."""

from __future__ import annotations

from millpond.model.errors import ConflictError, InvalidInputError, NotAllowedError
from millpond.model.states import ENDED_JOBS, JobState
from millpond.server.auth.roles import Caller, Verb, demand
from millpond.server.jobs.actions.changes import Changes, ServiceRevisions
from millpond.server.jobs.admission.submission import Submissions
from millpond.server.runtime.active_jobs.job_lookup import JobLookup
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.job.job_spec import document_again


class Requeueing:
    """Has jobs run once more."""

    def __init__(
        self, lookup: JobLookup, services: ServiceRevisions, changes: Changes, submissions: Submissions
    ) -> None:
        self._lookup = lookup
        self._services = services
        self._changes = changes
        self._submissions = submissions

    async def requeue(self, job: str, key: str, caller: Caller) -> JobInfo:
        """End the run of a job and let it wait for another; one that has ended is submitted again, by its owner alone.

        Args:
            key: repeating it gives the same new job.

        Returns:
            the job, or the new one with an id of its own.

        Raises:
            NotFoundError: there never was such a job.
            NotAllowedError: it has ended and is not the caller's, or their token allows no submission.
            ConflictError: it waits already, is at rest, or is being ended.
            InvalidInputError: it has ended and cannot be submitted again as it was.
        """
        info = await self._lookup.soon(self._services.standing_for(job))
        if JobState(info.state) not in ENDED_JOBS:
            return await self._changes.requeue(job, caller.user)
        demand(caller, Verb.SUBMIT_JOBS)
        if info.user != caller.user:
            raise NotAllowedError(
                f"job {job!r} has ended, and only {info.user} can have it run again",
                f"submit one like it as your own: `pond clone {job}`",
            )
        if info.parent:
            raise ConflictError(
                f"job {job!r} has ended, and is a member of an array",
                f"submit those that failed again: `pond clone {info.parent} --failed`",
            )
        document = await self._lookup.document(job)
        if document.get("stdin"):
            raise InvalidInputError(
                f"job {job!r} read standard input, which is not repeated", f"submit it without: `pond clone {job}`"
            )
        (again,) = await self._submissions.submit([document_again(document)], key, caller)
        return again
