"""Actions of users on jobs: stop, suspend, resume, requeue, migrate, resize, change time limit or priority, delete;
one after the other, or several jobs at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from millpond.model.amounts import seconds_text
from millpond.model.errors import (
    ConflictError,
    InvalidInputError,
    MillpondError,
    NotAllowedError,
    NotFoundError,
    UnavailableError,
)
from millpond.model.events import (
    DesiredCountChanged,
    Event,
    MigrateRequested,
    PriorityChanged,
    RequeueRequested,
    ResumeRequested,
    SuspendRequested,
    TimeLimitChanged,
)
from millpond.model.states import ENDED_JOBS, JobState
from millpond.model.workloads import Job, Kind, Priority, Role
from millpond.scheduling.records import JobRecord
from millpond.server.auth.queues import QueuePlace
from millpond.server.auth.roles import Caller, Verb, demand
from millpond.server.catalogues import ENGLISH
from millpond.server.http.error_responses import in_language, refusal_of
from millpond.server.jobs.admission.submission import Submissions
from millpond.server.operations.retention import remove_folder
from millpond.server.runtime.active_jobs.job_lookup import JobLookup
from millpond.server.runtime.inbox import ChangeJob
from millpond.server.runtime.loop import Loop
from millpond.server.server_components import ServerComponents
from millpond.server.storage.disk_use import DiskBooks
from millpond.server.storage.job_files import JobFiles
from millpond.specs.api.jobs.jobs import JobActed, JobInfo
from millpond.specs.api.jobs.requests import MigrateRequest, ResizeRequest
from millpond.specs.job.job_spec import document_again

LongestDev = Callable[[QueuePlace], float | None]
_AT_ONCE: Final = 100
"""So many stand before the scheduler together, which answers them in one turn."""


class ServiceRevisions(Protocol):
    """Which jobs stand for a service that was updated; see ``server.serving.services``."""

    def live_jobs(self, job: str) -> list[str]:
        """The jobs behind its address that have not ended; the job itself where it is no service's."""

    def standing_for(self, job: str) -> str:
        """The revision that stands for it now; else the job itself."""

    def require_free_size(self, job: str) -> None:
        """That no rollout decides how many replicas it has now; else a ``ConflictError``."""


class Changes:
    """Passes on what is asked of jobs.

    Args:
        longest_dev_s: how far the time limit of a dev job can be extended, by where it belongs; None: without bound.
    """

    def __init__(
        self,
        loop: Loop,
        services: ServiceRevisions,
        job_files: JobFiles,
        longest_dev_s: LongestDev,
    ) -> None:
        self._loop = loop
        self._services = services
        self._job_files = job_files
        self._longest_dev_s = longest_dev_s

    async def stop(self, job: str, by: str) -> JobInfo:
        """Ask for the end of a job; of a service that was updated, of all its revisions.

        Raises:
            NotFoundError, ConflictError: it never was, or has ended already.
        """
        first, *others = self._services.live_jobs(job)
        for other in others:
            await self._loop.answered(self._loop.stop_job(other, by))
        return await self._loop.answered(self._loop.stop_job(first, by))

    async def suspend(self, job: str, by: str, *, swap: bool = False) -> JobInfo:
        """Halt a running job where it is, or the members of an array that run; compute is free for others then.

        Args:
            swap: its device memory moves to host memory, so that its cards are free too.

        Raises:
            NotFoundError, ConflictError: it never was, or does not run, or there is no room in host memory.
        """
        return await self._change_each(
            job, lambda record, now: SuspendRequested(now, record.id, swap, by), _runs, "runs"
        )

    async def resume(self, job: str, by: str) -> JobInfo:
        """Let a suspended job, or those members of an array, go on as soon as their devices allow it.

        Flexible ones that wait for their hours line up at once.

        Raises:
            NotFoundError, ConflictError: it never was, or is not suspended.
        """
        job = self._services.standing_for(job)
        array = self._loop.job_cache.get(job)
        is_array = array is not None and array.array is not None
        may_be_held = is_array and (await self._job_files.soon(job)).flexible is not None

        def concerns(info: JobInfo) -> bool:
            return _is_halted(info) or (may_be_held and info.state == JobState.QUEUED)

        return await self._change_each(
            job, lambda record, now: ResumeRequested(now, record.id, by), concerns, "is suspended"
        )

    async def requeue(self, job: str, by: str) -> JobInfo:
        """End the run of a job, or the runs of an array's members, with notice and grace; it waits for another.

        Raises:
            NotFoundError, ConflictError: it never was, or neither runs nor is suspended.
        """
        return await self._change_each(
            job, lambda record, now: RequeueRequested(now, record.id, by), _has_run, "runs or is suspended"
        )

    async def change_priority(self, job: str, priority: Priority, by: str) -> JobInfo:
        """Give a job another class of priority; of an array, all members that have not ended and those that follow.

        Raises:
            NotFoundError, ConflictError: it never was, has ended, or would become background work, or is.
            InvalidInputError: its queue does not allow the class.
        """
        job = self._services.standing_for(job)

        def change(record: JobRecord, now: float) -> PriorityChanged:
            return PriorityChanged(now, record.id, priority, by)

        return await self._loop.answered(self._loop.change_job(ChangeJob(job, change, priority=priority, by=by)))

    async def migrate(self, job: str, request: MigrateRequest, by: str) -> JobInfo:
        """Have a running job go on with other cards: as it runs if that can be, else by an end and a start.

        Raises:
            NotFoundError: no such job, node or card.
            InvalidInputError, ConflictError: it cannot go there, or would lose its work.
        """
        job = self._services.standing_for(job)
        info = self._loop.job_cache.get(job)
        if info is not None and info.array is not None:
            raise InvalidInputError(f"{job!r} is an array", f"its members migrate one by one, such as {job}[0]")
        fixed = ""
        if info is not None:
            file = await asyncio.to_thread(self._job_files.file_of, job)
            fixed = "it runs in a container, which was given its cards when it started" if file.image else ""

        def change(record: JobRecord, now: float) -> MigrateRequested:
            return MigrateRequested(now, job, request.to, request.restart, fixed, by)

        return await self._loop.answered(self._loop.change_job(ChangeJob(job, change)))

    async def _change_each(
        self, job: str, event: Callable[[JobRecord, float], Event], concerns: Callable[[JobInfo], bool], in_words: str
    ) -> JobInfo:
        """Ask something of a job; of an array, of each member that it concerns, and it is enough if one can do it."""
        job = self._services.standing_for(job)
        array = self._loop.job_cache.get(job)
        if array is None or array.array is None:
            return await self._loop.answered(self._loop.change_job(ChangeJob(job, event)))
        members = [info.id for info in self._loop.job_cache.newest_first() if info.parent == job and concerns(info)]
        if not members:
            raise ConflictError(f"no member of array {job!r} {in_words}", f"see `pond ps --members {job}`")
        asked = [self._loop.change_job(ChangeJob(member, event)) for member in members]
        answers = await asyncio.gather(*map(self._loop.answered, asked), return_exceptions=True)
        failed = [answer for answer in answers if isinstance(answer, BaseException)]
        if len(failed) == len(members):
            raise failed[0]
        return self._loop.job_cache.get(job) or array

    async def resize(self, job: str, request: ResizeRequest, by: str) -> JobInfo:
        """Give an elastic job another number of tasks; of an array, each member that waits or runs.

        Raises:
            NotFoundError: no such job or role.
            ConflictError: no member of the array waits or runs, or a rollout decides how many replicas it has.
            InvalidInputError: outside the role's bounds, or the job has several roles and none was named.
        """
        job = self._services.standing_for(job)
        self._services.require_free_size(job)
        is_allowed = request.tasks > 0 or (await asyncio.to_thread(self._job_files.file_of, job)).may_scale_to_zero

        def change(record: JobRecord, now: float) -> DesiredCountChanged:
            if not is_allowed:
                raise InvalidInputError(f"job {record.id!r} cannot go without tasks", "only a service with min: 0 can")
            role = _role(record.job, request.role)
            if request.tasks and not role.minimum <= request.tasks <= role.maximum:
                raise InvalidInputError(
                    f"{request.tasks} is not a number of tasks of role {role.name!r} of job {record.id!r} "
                    f"(min {role.minimum}, max {role.maximum})",
                    "stay within these bounds, which its job file lays down",
                )
            return DesiredCountChanged(now, record.id, role.name, request.tasks, f"{by or 'somebody'} asked for it")

        return await self._change_each(job, change, lambda info: info.ended_at is None, "waits or runs")

    async def extend(self, job: str, by_s: float, by: str) -> JobInfo:
        """Give a job with a time limit more time.

        Raises:
            NotFoundError, ConflictError: it never was, has ended, or has no limit.
            InvalidInputError: that is more than the configuration, or a limit of its user, group or queue, allows.
        """

        def change(record: JobRecord, now: float) -> TimeLimitChanged:
            limit = record.job.time_limit_s
            owned = record.job
            longest = self._longest_dev_s(QueuePlace(owned.user, owned.queue, owned.group))
            if limit is None:
                raise ConflictError(f"job {job!r} has no time limit", "it runs until it is stopped")
            if record.job.kind is Kind.DEV and longest is not None and limit + by_s > longest:
                left = max(longest - limit, 0.0)
                raise InvalidInputError(
                    f"{seconds_text(limit + by_s)} in all are more than the {seconds_text(longest)} allowed here",
                    f"extend it by at most {seconds_text(left)}",
                )
            return TimeLimitChanged(now, job, limit + by_s, by)

        return await self._loop.answered(self._loop.change_job(ChangeJob(job, change)))


def delete_job(components: ServerComponents, disk: DiskBooks, job: str) -> JobInfo:
    """Drop a job that has ended, with all that it wrote; what it used stays in the books. Blocks.

    Raises:
        NotFoundError, ConflictError: it never was, has not ended, or is part of an array.
        UnavailableError: what it wrote cannot be removed.
    """
    info = components.lookup.look(job)
    if components.loop.job_cache.get(job) is not None:
        raise ConflictError(f"job {job!r} has not ended ({info.state})", f"end it first: `pond stop {job}`")
    if info.parent:
        raise ConflictError(f"job {job!r} is part of an array", f"delete all of it: `pond delete {info.parent}`")
    try:
        for part in (*(() if info.array is None else components.store.jobs.member_states(job)), job):
            remove_folder(components.state_dir, part)
            disk.deleted(part, info.user, info.group)
    except OSError as error:
        raise UnavailableError(f"{error.filename} cannot be removed ({error.strerror})", "remove it by hand") from error
    components.store.deletion.delete(job)
    components.job_files.forget(job)
    return info


def _runs(info: JobInfo) -> bool:
    return info.state == JobState.RUNNING


def _has_run(info: JobInfo) -> bool:
    """Whether it has a run that can end, or lost one while people kept it suspended."""
    return info.state in (JobState.STARTING, JobState.RUNNING) or _is_halted(info)


def _is_halted(info: JobInfo) -> bool:
    """Whether it is suspended, or lost its run while people kept it so."""
    return info.state == JobState.SUSPENDED or (info.state == JobState.QUEUED and bool(info.suspension))


def _role(job: Job, name: str) -> Role:
    """The role of this name, or the only one where none is named."""
    names = ", ".join(role.name for role in job.roles)
    if not name and len(job.roles) > 1:
        raise InvalidInputError(f"job {job.id!r} has several roles ({names})", "say which, such as worker=4")
    found = next((role for role in job.roles if name in ("", role.name)), None)
    if found is None:
        raise NotFoundError(f"job {job.id!r} has no role {name!r}", f"it has {names}")
    return found


async def act_on_each(
    jobs: Sequence[str], act: Callable[[str], Awaitable[JobInfo]], language: str = ENGLISH
) -> list[JobActed]:
    """Do something to each job.

    Args:
        jobs: ids; one that is there twice counts once.
        language: in which it is said why one is refused.

    Returns:
        what came of it for each, in their order.
    """

    async def answer(job: str) -> JobActed:
        try:
            info = await act(job)
            return JobActed(job=job, state=info.state, successor="" if info.id == job else info.id)
        except MillpondError as error:
            refusal = refusal_of(error)
            if refusal is None:
                raise
            return JobActed(job=job, error=in_language(language, refusal[1]))

    each_once, found = list(dict.fromkeys(jobs)), list[JobActed]()
    for begin in range(0, len(each_once), _AT_ONCE):
        found += await asyncio.gather(*map(answer, each_once[begin : begin + _AT_ONCE]))
    return found


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
