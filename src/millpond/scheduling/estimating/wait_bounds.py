"""Who becomes overdue in a future, by the law of ``cycle.overdue``, looked at less often."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping

from millpond.scheduling.cycle.overdue import bound_s
from millpond.scheduling.estimating.possible_jobs import Candidate, InLine
from millpond.scheduling.ordering.backlog import SMALL_LEAD, SMALL_WORK_S
from millpond.scheduling.ordering.queueing import FIRST_LOOK_S

NEXT_LOOK = 0.25
"""A job is looked at again after this part of its wait so far."""


class WaitBounds:
    """The backlog of a pool, and when its jobs are to be looked at.

    Args:
        capacity: cards.
        crowds: whether equals displace each other.
        backlog: the work that waits (card-seconds) and of how many jobs, by class of priority as in ranks.
        first_key: the key of an overdue job that was submitted now.
    """

    def __init__(
        self, capacity: float, *, crowds: bool, backlog: Mapping[float, tuple[float, float]], first_key: float
    ) -> None:
        self._capacity = capacity
        self._crowds = crowds
        self._backlog = dict(backlog)
        self._first_key = first_key
        self._promised: dict[int, float] = {}
        self._looks: list[tuple[float, int, int, InLine]] = []
        self._pushed = 0
        """How many looks were planned so far: two of a job that queued again can be due at the same instant."""

    def fork(self) -> WaitBounds:
        """A twin with which a future begins."""
        twin = WaitBounds(self._capacity, crowds=self._crowds, backlog=self._backlog, first_key=self._first_key)
        twin._promised, twin._looks, twin._pushed = dict(self._promised), list(self._looks), self._pushed
        return twin

    def add(self, entry: InLine, sign: int) -> None:
        """A job waits (``sign`` 1), or waits no longer (-1)."""
        candidate = entry.candidate
        if not candidate.overdue:
            work, jobs = self._backlog.get(entry.rank[1], (0.0, 0.0))
            self._backlog[entry.rank[1]] = work + sign * candidate.work, jobs + sign

    def watch(self, entry: InLine, now: float) -> None:
        """Look at a waiting job, but not before it can be overdue."""
        if not entry.candidate.overdue:
            _, lacking = self._waited_s(entry, now)
            self._look_in(entry, now, lacking / 2.0)

    def due(self, now: float) -> Iterator[InLine]:
        """Those that are to be looked at."""
        while self._looks and self._looks[0][0] <= now:
            yield heapq.heappop(self._looks)[3]

    def is_overdue(self, entry: InLine, now: float) -> bool | None:
        """Whether a job goes first now; None: if it is promised to do so. Else it is looked at later."""
        if entry.sequence in self._promised:
            return self._promised[entry.sequence] <= now
        waited, lacking = self._waited_s(entry, now)
        if lacking <= 0.0:
            return None
        # No backlog is worked off faster than by a second a second.
        self._look_in(entry, now, max(lacking / 2.0, NEXT_LOOK * waited))
        return False

    def promise(self, entry: InLine, at: float | None, now: float) -> None:
        """It goes first from an instant on; None: nobody knows when, so it is looked at again.

        Where equals displace each other, one that is small beside its pool goes first now.
        """
        if at is None:
            self._look_in(entry, now, NEXT_LOOK * (now - entry.submitted_s))
        else:
            at = now if self._crowds and self._is_small(entry.candidate) else at
            self._promised[entry.sequence] = at
            self._look_at(at, entry)

    def first(self, entry: InLine) -> float:
        """The key of a job that is overdue."""
        return self._first_key + entry.submitted_s

    def displaces_above(self, candidate: Candidate) -> float:
        """What a job displaces once it is overdue."""
        return candidate.displaces_above * (SMALL_LEAD if self._crowds and self._is_small(candidate) else 1.0)

    def _is_small(self, candidate: Candidate) -> bool:
        return candidate.work <= SMALL_WORK_S * self._capacity

    def _look_in(self, entry: InLine, now: float, seconds: float) -> None:
        self._look_at(now + max(seconds, FIRST_LOOK_S), entry)

    def _look_at(self, at: float, entry: InLine) -> None:
        self._pushed += 1
        heapq.heappush(self._looks, (at, entry.sequence, self._pushed, entry))

    def _waited_s(self, entry: InLine, now: float) -> tuple[float, float]:
        """For how long a job has waited, and how much longer it may by the backlog of now."""
        candidate = entry.candidate
        waited = now - entry.submitted_s - candidate.requeued_s
        work = jobs = 0.0
        for priority, (level, count) in self._backlog.items():
            if priority <= entry.rank[1]:
                work, jobs = work + level, jobs + count
        backlog_s, work_s = max(work - candidate.work, 0.0) / self._capacity, candidate.work / self._capacity
        bound = bound_s(candidate.length_s, work_s, backlog_s, max(jobs - 1.0, 0.0), crowds=self._crowds)
        return waited, bound - waited
