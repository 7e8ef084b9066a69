"""All arrays that have not ended. For the scheduler's thread, except ``unsubmitted``.

What their members have come to follows from the members' rows in the store and from the core: a restarted server finds
it out anew, so nothing here has to survive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from millpond.model.errors import InvalidInputError
from millpond.model.reasons import Cause, Reason
from millpond.model.states import JobState
from millpond.model.workloads import Job, Priority
from millpond.server.runtime.active_jobs.array import Array
from millpond.server.store.jobs import CLOSED, DEPENDENT, LIVE, JobStore, NewJob
from millpond.server.store.trials import TrialStore
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.api.jobs.reasons import ReasonInfo
from millpond.specs.job.job_ids import split_member
from millpond.specs.job.job_spec import stored_job


class Arrays:
    """Arrays by id, and which of them have changed.

    Attributes:
        unreadable: arrays of which the stored file is damaged: they are not among these.
    """

    def __init__(self, job_store: JobStore, trials: TrialStore) -> None:
        self._arrays: dict[str, Array] = {}
        self._changed: dict[str, None] = {}
        self._refused: set[str] = set()
        self.unreadable: list[NewJob] = []
        for row in job_store.open_arrays():
            try:
                self.hold(_restored(row, job_store, trials))
            except InvalidInputError:
                self.unreadable.append(row)

    def __contains__(self, job: str) -> bool:
        return job in self._arrays

    def __getitem__(self, job: str) -> Array:
        return self._arrays[job]

    @property
    def has_capacity(self) -> bool:
        """Whether the scheduler should have more members at once."""
        return any(array.room and array.id not in self._refused for array in self._arrays.values())

    def hold(self, array: Array) -> None:
        """Take one on."""
        self._arrays[array.id] = array
        self._changed[array.id] = None

    def release(self, job: str) -> None:
        """It no longer waits for other jobs."""
        self._arrays[job].held = False

    def close(self, job: str) -> None:
        """No more of its members are handed to the scheduler."""
        self._arrays[job].closed = True
        self._changed[job] = None

    def reprioritize(self, job: str, priority: Priority) -> None:
        """The members that follow have another class of priority; nothing happens if it is no array."""
        array = self._arrays.get(job)
        if array is not None:
            array.job = replace(array.job, priority=priority)
            self._changed[job] = None

    def drop(self, job: str) -> None:
        """It has ended, durably."""
        self._arrays.pop(job, None)

    def due(self, check: Callable[[Job], Reason | None], ending: frozenset[str] = frozenset()) -> Iterator[Job]:
        """Members to be handed to the scheduler now.

        Args:
            check: why the cluster could never run a job. While that is so none of the array's is handed over: machines
                come back.
            ending: arrays and members that are being ended.
        """
        self._refused.clear()
        for array in self._arrays.values():
            if not array.room or array.id in ending:
                continue
            if check(array.job) is not None:
                self._refused.add(array.id)
                continue
            yield from (member for member in array.next_members() if member.id not in ending)

    def note_row(self, row: NewJob) -> None:
        """The row of a member is there: it was handed to the scheduler, or ended before."""
        array = self._arrays.get(row.parent)
        if array is not None:
            array.note(row.id, JobState.QUEUED if row.ended is None else JobState(row.ended.state))
            if row.ended is None and array.eligible_at is None:
                array.eligible_at = row.submitted_at
            self._changed[array.id] = None

    def look(self, member: JobInfo) -> None:
        """How a member looks now."""
        array = self._arrays.get(member.parent)
        if array is not None:
            array.note(member.id, JobState(member.state))
            array.note_start(member.first_started_at)
            self._changed[array.id] = None

    def prune(self, member: str, why: str) -> None:
        """The member is being ended because it fell behind."""
        array = self.of(member)
        if array is not None:
            array.prune(member, why)

    def why_pruned(self, member: str) -> str:
        """Why a member is being ended, or was, as a trial that fell behind; empty when it is not."""
        array = self.of(member)
        return "" if array is None else array.why_pruned(member)

    def changed_views(self, now: float) -> list[JobInfo]:
        """The new views of arrays that have changed; of those that are over, the last."""
        changed = [self._arrays[name] for name in self._changed if name in self._arrays]
        self._changed.clear()
        return [array.ended_view(now) if array.over else array.view() for array in changed]

    def of(self, member: str) -> Array | None:
        """The array of a member; None when there is none or it has ended."""
        found = split_member(member)
        return None if found is None else self._arrays.get(found[0])

    def unsubmitted(self, member: str) -> JobInfo | None:
        """A member that was not handed to the scheduler yet; None when it was, or never can be. Any thread."""
        found, array = split_member(member), self.of(member)
        if found is None or array is None or not array.is_unsubmitted(found[1]):
            return None
        return array.view_unsubmitted(found[1])

    def as_unsubmitted(self, member: str) -> JobInfo | None:
        """A member of a living array as it looked before its turn, whether that has come or not. Any thread."""
        found, array = split_member(member), self.of(member)
        if found is None or array is None or array.members.position(found[1]) is None:
            return None
        return array.view_unsubmitted(found[1])

    def reason(self, job: str, explain: Callable[[str], ReasonInfo | None]) -> ReasonInfo | None:
        """Why an array, or a member that was not handed over yet, waits or runs; None when it is neither.

        Args:
            explain: why a job waits that the scheduler has.
        """
        array = self._arrays.get(job)
        if array is not None:
            return self._reason(array, explain)
        info = self.unsubmitted(job)
        if info is None:
            return None
        reason = self._reason(self._arrays[info.parent], explain)
        return replace(reason, job=job, state=info.state)

    def _reason(self, array: Array, explain: Callable[[str], ReasonInfo | None]) -> ReasonInfo:
        info = array.view()
        assert info.array is not None, "the view of an array says how far it is"
        numbers = {"unsubmitted": info.array.unsubmitted, "waiting": info.array.waiting, "running": info.array.running}
        follow = f"; {info.array.unsubmitted} more follow" if info.array.unsubmitted else ""
        first = array.first_waiting()
        reason = None if first is None else explain(first)
        if reason is not None:
            summary = f"{info.array.waiting} of {info.array.count} wait{follow}; the first is {first}: {reason.summary}"
            numbers = {**reason.numbers, **numbers}
            return replace(reason, job=array.id, state=info.state, summary=summary, numbers=numbers)
        if array.held:
            cause, summary = Cause.DEPENDENCY, "its array waits for other jobs"
        elif array.id in self._refused:
            cause, summary = Cause.IMPOSSIBLE, "no machine that is there now could run its members"
        elif info.array.unsubmitted and array.full and not array.closed:
            cause = Cause.ARRAY_LIMIT
            summary = f"{array.live} are under way, as many as its file allows at once{follow}"
        elif array.live:
            cause, summary = Cause.FITS, info.array.summary + follow
        else:
            cause, summary = Cause.NOT_CONSIDERED, f"its members are about to queue{follow}"
        return ReasonInfo(job=array.id, state=info.state, cause=cause, summary=summary, numbers=numbers)


def array_of(job: Job, document: dict[str, object], submitted_at: float) -> Array | None:
    """The array that a checked job file asks for; None when it is one job."""
    if document.get("array") is None and document.get("sweep") is None:
        return None
    members = stored_job(document).members
    assert members is not None, "both fields are either left out or name members"
    return Array(job, members, submitted_at, sweep=document.get("sweep") is not None)


def _restored(row: NewJob, job_store: JobStore, trials: TrialStore) -> Array:
    """An array as it was when the server ended; members that live are looked at afterwards."""
    file = stored_job(row.document)
    array = array_of(replace(file.to_job(row.id, row.user), group=row.group), row.document, row.submitted_at)
    assert array is not None, "only arrays have members"
    array.held, array.closed = row.state == DEPENDENT, row.state == CLOSED
    array.eligible_at = job_store.first_queued_at(row.id)
    for member, known in trials.of(row.id).items():
        if known.get("stopped"):
            array.prune(member, known["stopped"])
    for member, state in job_store.member_states(row.id).items():
        array.note(member, JobState.QUEUED if state == LIVE else JobState(state))
    first = job_store.first_member(row.id)
    array.note_start(first.first_started_at if first is not None else None)
    return array
