"""Jobs that wait for the end of others (``after:``): stored, and handed to the core when what they wait for has come.

The core never sees a job that may not start yet: to it, a dependency would be one more state in which a job is in
nobody's way, and it forgets jobs when they end. Whether a job may go on follows from the stored ends of others alone,
so a restarted server finds out anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from millpond.model.errors import ConflictError, InvalidInputError
from millpond.model.reasons import Cause
from millpond.model.workloads import Job, JobState
from millpond.server.arrays.arrays import Arrays, never_fed
from millpond.server.board import Board
from millpond.server.store.store import Store
from millpond.specs.api import ReasonInfo
from millpond.specs.job import check_job
from millpond.specs.members import split_member
from millpond.specs.mounts import After

_WANTED = {"ok": "succeed", "any": "end", "failed": "fail"}


@dataclass(frozen=True, slots=True)
class Dependent:
    """A job that waits for others; ``submitted_at`` in seconds since 1970."""

    job: Job
    submitted_at: float
    after: After


@dataclass(frozen=True, slots=True)
class Standing:
    """How a dependent stands to the jobs it waits for.

    Attributes:
        open: those that have not ended, with their state and what is hoped of them.
        doomed: why it can never start; empty when it can.
    """

    open: tuple[tuple[str, str, str], ...] = ()
    doomed: str = ""

    @property
    def ready(self) -> bool:
        """Whether nothing keeps it."""
        return not self.open and not self.doomed


class Dependents:
    """All jobs that wait for others. For the scheduler's thread.

    Args:
        board: the looks of jobs that have not ended.
        arrays: knows the members that are not on the board yet.
    """

    def __init__(self, store: Store, board: Board, arrays: Arrays) -> None:
        self._store = store
        self._board = board
        self._arrays = arrays
        self._waiting: dict[str, Dependent] = {}
        self._to_look_at: dict[str, None] = {}
        for row in store.dependents():
            file = check_job(row.document)
            job = replace(file.to_job(row.id, row.user), group=row.group)
            self.hold(Dependent(job, row.submitted_at, file.file.after))

    def __contains__(self, job: str) -> bool:
        return job in self._waiting

    @property
    def all(self) -> list[Dependent]:
        """All of them, the oldest first."""
        return list(self._waiting.values())

    def hold(self, dependent: Dependent) -> None:
        """Take one on; it is looked at with the next turn, as what it waits for may have ended meanwhile."""
        self._waiting[dependent.job.id] = dependent
        self._to_look_at[dependent.job.id] = None

    def drop(self, job: str) -> Dependent:
        """It no longer waits: it was released or cancelled."""
        self._to_look_at.pop(job, None)
        return self._waiting.pop(job)

    def ended(self, jobs: Iterable[str]) -> bool:
        """These have ended, durably; says whether somebody waits for one of them."""
        over = set(jobs)
        concerned = (
            [name for name, held in self._waiting.items() if any(_is_in(job, over) for job in held.after.jobs)]
            if over
            else []
        )
        self._to_look_at.update(dict.fromkeys(concerned))
        return bool(concerned)

    def due(self) -> list[tuple[Dependent, Standing]]:
        """Those that may go on, or never can. They come again until they are dropped."""
        found = [(self._waiting[name], self.standing(self._waiting[name].after)) for name in self._to_look_at]
        due = [(dependent, standing) for dependent, standing in found if not standing.open or standing.doomed]
        self._to_look_at = {dependent.job.id: None for dependent, _ in due}
        return due

    def waits(self, document: dict[str, Any]) -> After | None:
        """What a submission has to wait for; None when nothing.

        Raises:
            InvalidInputError: it names a job that never was.
            ConflictError: it could never start: a job has ended otherwise than it needs.
        """
        after = After.model_validate(document.get("after", {}))
        for name in after.jobs:
            if self._state(name) is None:
                raise no_job_to_wait_for(name)
        standing = self.standing(after)
        if standing.doomed:
            raise ConflictError(f"it would never start: {standing.doomed}", "leave that job out of `after`")
        return after if standing.open else None

    def standing(self, after: After) -> Standing:
        """How the jobs stand that something waits for."""
        waiting = []
        for how, names in (("ok", after.ok), ("any", after.any), ("failed", after.failed)):
            for name in names:
                state = self._state(name)
                if state is None:
                    return Standing(doomed=f"job {name}, which it waits for, is not known any more")
                if not state.ended:
                    waiting.append((name, state.value, _WANTED[how]))
                elif (how, state) not in _MET:
                    ended = "was cancelled" if state is JobState.CANCELLED else state.value
                    return Standing(doomed=f"job {name}, which it waits for to {_WANTED[how]}, {ended}")
        return Standing(tuple(waiting))

    def reason(self, job: str) -> ReasonInfo | None:
        """Why it waits; None when it waits for nobody."""
        dependent = self._waiting.get(job)
        if dependent is None:
            return None
        found = self.standing(dependent.after).open
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
        info = self._board.get(job) or self._store.ended_job(job)
        info = info or self._arrays.unfed(job) or never_fed(job, self._store)
        return None if info is None else JobState(info.state)


def _is_in(job: str, over: set[str]) -> bool:
    """Whether a job is one of these, or a member of one of them: with an array end all of its members."""
    member = split_member(job)
    return job in over or (member is not None and member[0] in over)


def no_job_to_wait_for(name: str) -> InvalidInputError:
    """The error for a job that is not there, or not for whoever would wait for it."""
    return InvalidInputError(f"there is no job {name!r} to wait for", "list the jobs with pond ps --all")


_MET = {
    ("ok", JobState.SUCCEEDED),
    ("failed", JobState.FAILED),
    *(("any", state) for state in JobState if state.ended),
}
"""Ends that are what was hoped for."""
