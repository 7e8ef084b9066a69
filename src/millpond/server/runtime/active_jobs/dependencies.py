"""Jobs that wait for the end of others (``after:``), or for an image or data that is far: stored, and handed to the
core when what they wait for has come.

The core never sees a job that may not start yet: to it, a dependency would be one more state in which a job holds
nothing, and it forgets jobs when they end. Whether a job may go on follows from the stored ends of others alone,
so a restarted server finds out anew; what is near is found out by the staging
(``server.storage.provisioning.staging``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from millpond.model.errors import ConflictError, InvalidInputError
from millpond.model.reasons import Cause
from millpond.model.states import JobState
from millpond.model.workloads import Job
from millpond.server.runtime.active_jobs.job_lookup import JobLookup
from millpond.server.storage.provisioning.staging import NothingToStage, Staging
from millpond.server.store.jobs import JobStore, NewJob
from millpond.specs.api.jobs.reasons import ReasonInfo
from millpond.specs.job.job_ids import array_id
from millpond.specs.job.job_spec import stored_job
from millpond.specs.job.mounts import After

_WANTED = {"ok": "succeed", "any": "end", "failed": "fail"}


@dataclass(frozen=True, slots=True)
class Dependent:
    """A job that waits.

    Attributes:
        submitted_at: in seconds since 1970.
        document: its job file.
    """

    job: Job
    submitted_at: float
    after: After
    document: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DependencyState:
    """How a dependent stands to the jobs it waits for.

    Attributes:
        open: those that have not ended, with their state and what is hoped of them.
        unsatisfiable: why it can never start; empty when it can.
    """

    open: tuple[tuple[str, str, str], ...] = ()
    unsatisfiable: str = ""


def fields_with_priority(job: Job) -> dict[str, Any]:
    """What a job file says so that it is read as this job, after that got another class of priority: its share class,
    which may follow from the first, stays."""
    return {"priority": job.priority.name.lower(), "share_class": job.share_class.value}


class Dependents:
    """All jobs that wait for others. For the scheduler's thread.

    Args:
        staging: fetches what they need.

    Attributes:
        unreadable: jobs of which the stored file is damaged: they are not among these.
    """

    def __init__(self, job_store: JobStore, lookup: JobLookup, staging: Staging | NothingToStage) -> None:
        self._lookup = lookup
        self._staging = staging
        self._waiting: dict[str, Dependent] = {}
        self._to_look_at: dict[str, None] = {}
        self.unreadable: list[NewJob] = []
        for row in job_store.dependents():
            try:
                file = stored_job(row.document)
            except InvalidInputError:
                self.unreadable.append(row)
                continue
            job = replace(file.to_job(row.id, row.user), group=row.group)
            self.hold(Dependent(job, row.submitted_at, file.file.after, row.document))

    def __contains__(self, job: str) -> bool:
        return job in self._waiting

    def __getitem__(self, job: str) -> Dependent:
        return self._waiting[job]

    @property
    def all(self) -> list[Dependent]:
        """All of them, the oldest first."""
        return list(self._waiting.values())

    def hold(self, dependent: Dependent) -> None:
        """Take one on; it is looked at with the next turn, as what it waits for may have ended meanwhile."""
        self._waiting[dependent.job.id] = dependent
        self._staging.begin(dependent.job.id, dependent.document, dependent.job.user)
        self._to_look_at[dependent.job.id] = None

    def drop(self, job: str) -> Dependent:
        """It no longer waits: it was released or cancelled."""
        self._to_look_at.pop(job, None)
        self._staging.forget(job)
        return self._waiting.pop(job)

    def reprioritized(self, job: Job) -> Dependent:
        """It has another class of priority from now on: that of ``job``."""
        held = self._waiting[job.id]
        changed = replace(held, job=job, document={**held.document, **fields_with_priority(job)})
        self._waiting[job.id] = changed
        return changed

    def ended(self, jobs: Iterable[str]) -> bool:
        """These have ended, durably; returns whether a job waits for one of them."""
        over = set(jobs)
        concerned = (
            [name for name, held in self._waiting.items() if any(_is_in(job, over) for job in held.after.jobs)]
            if over
            else []
        )
        self._to_look_at.update(dict.fromkeys(concerned))
        return bool(concerned)

    def due(self) -> list[tuple[Dependent, DependencyState]]:
        """Those that may go on, or never can. They come again until they are dropped."""
        self._to_look_at.update(dict.fromkeys(name for name in self._staging.settled() if name in self._waiting))
        found = [(self._waiting[name], self._whole_standing(self._waiting[name])) for name in self._to_look_at]
        due = [(dependent, standing) for dependent, standing in found if not standing.open or standing.unsatisfiable]
        self._to_look_at = {dependent.job.id: None for dependent, _ in due}
        return due

    def _whole_standing(self, dependent: Dependent) -> DependencyState:
        """How a job stands to all that it waits for."""
        standing, stage = self.standing(dependent.after), self._staging.look(dependent.job.id)
        if standing.unsatisfiable or stage.ready:
            return standing
        if stage.unsatisfiable:
            return DependencyState(unsatisfiable=stage.unsatisfiable)
        return DependencyState((*standing.open, (dependent.job.id, JobState.QUEUED.value, "be provided for")))

    def waits(self, document: dict[str, Any], together: Collection[str] = ()) -> After | None:
        """What a submission has to wait for; None when nothing.

        Args:
            together: jobs that are submitted together with it: they have not ended, and may not be there yet.

        Raises:
            InvalidInputError: it names a job that never was.
            ConflictError: it could never start: a job has ended otherwise than it needs.
        """
        after = After.model_validate(document.get("after", {}))
        for name in after.jobs:
            if not _is_in(name, together) and self._state(name) is None:
                raise no_job_to_wait_for(name)
        standing = self.standing(after, together)
        if standing.unsatisfiable:
            raise ConflictError(f"it would never start: {standing.unsatisfiable}", "leave that job out of `after`")
        return after if standing.open else None

    def standing(self, after: After, together: Collection[str] = ()) -> DependencyState:
        """How the jobs stand that something waits for; ``together`` as in ``waits``."""
        waiting = []
        for how, names in (("ok", after.ok), ("any", after.any), ("failed", after.failed)):
            for name in names:
                state = JobState.QUEUED if _is_in(name, together) else self._state(name)
                if state is None:
                    return DependencyState(unsatisfiable=f"job {name}, which it waits for, is not known any more")
                if not state.ended:
                    waiting.append((name, state.value, _WANTED[how]))
                elif (how, state) not in _MET:
                    ended = "was cancelled" if state is JobState.CANCELLED else state.value
                    return DependencyState(unsatisfiable=f"job {name}, which it waits for to {_WANTED[how]}, {ended}")
        return DependencyState(tuple(waiting))

    def reason(self, job: str) -> ReasonInfo | None:
        """Why it waits; None when it does not."""
        dependent = self._waiting.get(job)
        if dependent is None:
            return None
        found = self.standing(dependent.after).open
        stage = self._staging.look(job)
        if not found and not stage.ready and not stage.unsatisfiable:
            return ReasonInfo(
                job=job,
                state=JobState.QUEUED,
                cause=Cause.WAITING_FOR_IMAGE if stage.is_image else Cause.WAITING_FOR_DATA,
                summary=stage.summary,
                numbers=dict(stage.numbers),
            )
        if not found:
            return ReasonInfo(
                job=job, state=JobState.QUEUED, cause=Cause.NOT_CONSIDERED, summary="it is about to queue"
            )
        name, state, hoped = found[0]
        more = f", and for {len(found) - 1} more" if len(found) > 1 else ""
        return ReasonInfo(
            job=job,
            state=JobState.QUEUED,
            cause=Cause.DEPENDENCY,
            summary=f"it waits for job {name} to {hoped}, which is {state} now{more}",
            numbers={"jobs_waited_for": len(found)},
            blocked_by=name,
        )

    def _state(self, job: str) -> JobState | None:
        """A job's present or last state; None when there never was such a job."""
        info = self._lookup.find(job)
        return None if info is None else JobState(info.state)


def _is_in(job: str, over: Collection[str]) -> bool:
    """Whether a job is one of these, or a member of one of them: with an array end all of its members."""
    return job in over or array_id(job) in over


def no_job_to_wait_for(name: str) -> InvalidInputError:
    """The error for a job that is not there, or not for the user who would wait for it."""
    return InvalidInputError(
        f"there is no job {name!r} to wait for",
        "name a job of the same file, one of your own, or an id (`pond ps --all` lists them)",
    )


_MET = {
    ("ok", JobState.SUCCEEDED),
    ("failed", JobState.FAILED),
    *(("any", state) for state in JobState if state.ended),
}
"""Ends that are what was hoped for."""
