"""One array that has not ended: the states of its members, and how many more the scheduler may get.

A member is an ordinary job to the scheduler, which knows nothing of arrays. It is handed over when only few of its kind
wait there, so that ten thousand members are neither ten thousand jobs in line nor ten thousand rows at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from millpond.model.errors import InvalidInputError
from millpond.model.states import JobState
from millpond.model.workloads import Job
from millpond.server.runtime.active_jobs.job_cache import STOPPED_WITHOUT_CODE, view_before_start
from millpond.specs.api.jobs.jobs import ArrayInfo, JobInfo
from millpond.specs.job.arrays import Members, parse_members
from millpond.specs.job.job_ids import member_id, split_member

FEWEST_WAITING: Final = 32
"""So many members may wait in line even while none runs."""
MOST_WAITING: Final = 1_000
_FAILED_CODE: Final = 1

_UNSUBMITTED, _WAITING, _RUNNING, _SUSPENDED, _SUCCEEDED, _FAILED, _CANCELLED, _PRUNED = b".qrhsfcp"
_CODES: Final = {
    JobState.QUEUED: _WAITING,
    JobState.SUSPENDED: _SUSPENDED,
    JobState.SUCCEEDED: _SUCCEEDED,
    JobState.FAILED: _FAILED,
    JobState.CANCELLED: _CANCELLED,
}
"""All other states are those of running members."""


class Array:
    """An array that has not ended.

    Args:
        job: a member as the scheduler sees it, but for its id, which is the array's.
        sweep: its members are trials.

    Attributes:
        held: it waits for other jobs; none of its members is handed over.
        eligible_at: when the first member was handed over, in seconds since 1970; None before.
        closed: no more members are handed over.
        first_started_at: when the first member started, in seconds since 1970.
    """

    def __init__(self, job: Job, members: Members, submitted_at: float, *, sweep: bool) -> None:
        self.job = job
        self.members = members
        self.submitted_at = submitted_at
        self.sweep = sweep
        self.held = False
        self.eligible_at: float | None = None
        self.closed = False
        self.first_started_at: float | None = None
        self._states = bytearray([_UNSUBMITTED]) * len(members)
        self._counts = Counter({_UNSUBMITTED: len(members)})
        self._next = 0
        self._pruned: dict[int, str] = {}

    @property
    def id(self) -> str:
        """The array's id."""
        return self.job.id

    @property
    def over(self) -> bool:
        """Whether all members have ended, or never will be handed over."""
        return not self.live and (self.closed or not self._counts[_UNSUBMITTED])

    @property
    def live(self) -> int:
        """Members that were handed over and have not ended."""
        return self._counts[_WAITING] + self._counts[_RUNNING] + self._counts[_SUSPENDED]

    @property
    def full(self) -> bool:
        """Whether as many members are under way as its job file allows at once."""
        return self.members.parallel is not None and self.live >= self.members.parallel

    @property
    def room(self) -> int:
        """How many more members the scheduler may have now."""
        if self.held or self.closed or not self._counts[_UNSUBMITTED]:
            return 0
        waiting, running = self._counts[_WAITING], self._counts[_RUNNING]
        room = min(max(FEWEST_WAITING, running), MOST_WAITING) - waiting
        if self.members.parallel is not None:
            room = min(room, self.members.parallel - self.live)
        return max(room, 0)

    def next_members(self) -> Iterator[Job]:
        """The members that may be handed over now, as many as there is room for."""
        position = self._next
        for _ in range(min(self.room, self._counts[_UNSUBMITTED])):
            position = self._states.index(_UNSUBMITTED, position)
            yield self.member(self.members.at(position))
            position += 1

    def member(self, index: int) -> Job:
        """A member as the scheduler sees it."""
        return replace(self.job, id=member_id(self.id, index))

    def living(self) -> list[str]:
        """Ids of the members that were handed over and have not ended."""
        codes = (_WAITING, _RUNNING, _SUSPENDED)
        return [member_id(self.id, self.members.at(place)) for place, code in enumerate(self._states) if code in codes]

    def first_waiting(self) -> str | None:
        """The first member in line; None when none waits there."""
        place = self._states.find(_WAITING)
        return None if place < 0 else member_id(self.id, self.members.at(place))

    def note(self, member: str, state: JobState) -> None:
        """A member is in this state now; it was handed over, if it was not before."""
        place = self._place(member)
        if place is None:
            return
        code = _CODES.get(state, _RUNNING)
        if code == _CANCELLED and place in self._pruned:
            code = _PRUNED
        self._counts[self._states[place]] -= 1
        self._counts[code] += 1
        self._states[place] = code
        while self._next < len(self._states) and self._states[self._next] != _UNSUBMITTED:
            self._next += 1

    def note_start(self, at: float | None) -> None:
        """A member first started then."""
        if at is not None:
            self.first_started_at = min(at, self.first_started_at or at)

    def prune(self, member: str, why: str) -> None:
        """Its end, when it comes, is that of a trial that fell behind."""
        place = self._place(member)
        if place is not None:
            self._pruned[place] = why

    def why_pruned(self, member: str) -> str:
        """How a trial fell behind whose end was asked for because of that; empty for all others."""
        place = self._place(member)
        return "" if place is None else self._pruned.get(place, "")

    def is_unsubmitted(self, index: int) -> bool:
        """Whether a member of this index is there and was not handed over yet."""
        place = self.members.position(index)
        return place is not None and self._states[place] == _UNSUBMITTED

    def view(self) -> JobInfo:
        """The array as lists and details show it."""
        before = view_before_start(self.job, self.submitted_at)
        return replace(
            before,
            state=self._state(),
            eligible_at=self.eligible_at,
            first_started_at=self.first_started_at,
            started_at=self.first_started_at,
            tasks=[],
            array=self._info(),
        )

    def ended_view(self, at: float) -> JobInfo:
        """Its last view; members that were never handed over count as cancelled."""
        unsubmitted = self._counts[_UNSUBMITTED]
        self._counts[_CANCELLED] += unsubmitted
        self._counts[_UNSUBMITTED] = 0
        state = self._last_state()
        codes = {JobState.SUCCEEDED: 0, JobState.FAILED: _FAILED_CODE, JobState.CANCELLED: STOPPED_WITHOUT_CODE}
        return replace(self.view(), state=state.value, ended_at=at, exit_code=codes[state])

    def view_unsubmitted(self, index: int) -> JobInfo:
        """A member that was not handed over yet."""
        return view_before_start(self.member(index), self.submitted_at)

    def _place(self, member: str) -> int | None:
        found = split_member(member)
        return None if found is None else self.members.position(found[1])

    def _state(self) -> str:
        if self.live and self.closed:
            return JobState.STOPPING.value
        if self._counts[_RUNNING]:
            return JobState.RUNNING.value
        return JobState.SUSPENDED.value if self._counts[_SUSPENDED] else JobState.QUEUED.value

    def _last_state(self) -> JobState:
        """A sweep has succeeded when a trial has; any other array when all its members have."""
        counts = self._counts
        if self.sweep and counts[_SUCCEEDED] and not self.closed:
            return JobState.SUCCEEDED
        if counts[_FAILED]:
            return JobState.FAILED
        return JobState.CANCELLED if counts[_CANCELLED] else JobState.SUCCEEDED

    def _info(self) -> ArrayInfo:
        counts = self._counts
        return ArrayInfo(
            count=len(self.members),
            indices=str(self.members),
            parallel=self.members.parallel,
            sweep=self.sweep,
            unsubmitted=counts[_UNSUBMITTED],
            waiting=counts[_WAITING],
            running=counts[_RUNNING],
            suspended=counts[_SUSPENDED],
            succeeded=counts[_SUCCEEDED],
            failed=counts[_FAILED],
            cancelled=counts[_CANCELLED],
            pruned=counts[_PRUNED],
        )


def array_named(job: str, array: ArrayInfo) -> InvalidInputError:
    """The error where one job is meant and an array is named."""
    first = parse_members(array.indices).first
    return InvalidInputError(f"{job!r} is an array of {array.count} jobs", f"name a member: {job}.{first}")
