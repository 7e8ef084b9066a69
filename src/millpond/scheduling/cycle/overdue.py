"""No job waits for ever beside work that keeps overtaking it: in time it goes first in its class, and gets room.

A job is overdue once it has waited for

    length + backlog + COST_PART * jobs * length * cards / capacity

and then for as long as running work was expected to need to leave room for it. The backlog is the work that waits
beside it in its pool, in its class and above, and is not overdue, in seconds of all cards of the pool; ``jobs`` is how
many wait there. The last term is a part of what going first costs them, as each then waits longer by the job's own
work. Where equals displace each other the backlog counts ``(1 + (backlog / length) ** 2) ** CROWDING`` times: where it
is large, what waits there is long itself, and a job that went first is not displaced while it runs.

Where equals displace each other, a job that is small beside its pool, as it would keep all cards of that busy for at
most ``SMALL_WORK_S``, delays the others little. Its bound has the exponent ``SMALL_CROWDING`` and no last term. It is
overdue as soon as it has waited for its bound, without a promise, and then displaces its equals as if its key were
``SMALL_LEAD`` of what it is. Its bound is still long where far more waits than its own length, as in an overload: if
most jobs became overdue, they would displace each other for nothing.

Any job is overdue at once where, while it waited, cards stood idle (``ordering.idle_time``) that could have done
``IDLE_PART`` of its own work and of ``IDLE_BACKLOG`` times the backlog, if it has waited for ``IDLE_LENGTH`` of its
length: it lacks a place, not time on the cards.

While more arrives than can be done the backlog grows, and with it all that a job may wait; below that load it is
bounded, and so is the wait. An overdue job goes before all jobs of its class, and of its queue's round, that are not;
among them the oldest is first. So the reservation of its pool is its own (``cycle.reservations``), with preemption too.
With ``fair`` and ``edf``, where its turn comes as jobs before it start, it stays in its place: to promote it would let
it pass older jobs that are not overdue yet. Once it is the first that finds no room, its reservation holds as well.
"""

from __future__ import annotations

import heapq

from millpond.model.resources import CARD_MILLI
from millpond.scheduling.cycle.reservations import Reserver
from millpond.scheduling.ordering.backlog import SMALL_WORK_S, length_s
from millpond.scheduling.ordering.queueing import FIRST_LOOK_S, capacity_of_pool, in_line, line_up
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.admission import admitted_tasks

COST_PART = 0.25
"""A job waits for this part of the seconds by which its going first would delay all others together."""

CROWDING = 2
"""How strongly, with preemption, a backlog that is large beside the job itself lets it wait."""

SMALL_CROWDING = 0.4
"""The same exponent for a job that is small beside its pool: a backlog of twice its length counts 1.9 times, not 25."""

IDLE_PART, IDLE_BACKLOG = 0.25, 2.0
"""A job goes first at once where, while it waited, cards stood idle that could have done this part of its own work and
of so many times what waits beside it,"""

IDLE_LENGTH = 0.5
"""and it has waited for this part of its length."""

NEXT_LOOK = 0.05
"""A job that is not overdue yet is looked at again after this part of its wait so far."""

LOOKS_PER_CYCLE = 32
"""How many jobs one cycle looks at, the first for which running work has to be read being the last: a bound on work."""


class Overdue:
    """Says on one state which waiting jobs are overdue."""

    def __init__(self, state: State, reserver: Reserver) -> None:
        self._state = state
        self._reserver = reserver
        self._bounded = False

    def promote(self) -> None:
        """Let the jobs that have become overdue go first in their class, where the ordering wants that, from now on."""
        state, left = self._state, LOOKS_PER_CYCLE
        looks, now = state.looks, state.now
        if looks and looks[0][0] <= now:
            self._bounded = state.has_bounds
        while left and looks and looks[0][0] <= now:
            at, sequence, job = heapq.heappop(looks)
            record = in_line(state, job, sequence)
            if record is None or record.overdue or record.look_at != at:
                continue
            record.look_at, was_read = self._next_look(record)
            left = 0 if was_read else left - 1
            if record.look_at <= now:
                record.overdue = True
                state.waiting.backlog.forget(record)
                key, turn, record.displaces_above, _ = line_up(state, record)
                state.waiting.rekey(record, key, turn)
            else:
                heapq.heappush(looks, (record.look_at, sequence, job))

    def _next_look(self, record: JobRecord) -> tuple[float, bool]:
        """When a job is to be looked at next, now if it is overdue; and whether running work was read for that."""
        state, now = self._state, self._state.now
        waited, own_s = now - record.requeued_at, length_s(record)
        again = now + max(NEXT_LOOK * waited, FIRST_LOOK_S)
        at_once = self._was_enough_idle(record, waited, own_s)
        if not at_once and (waited < own_s or waited < self._bound_s(record, own_s)):
            return again, False  # the bound is never below the length
        is_new = not record.promised_at
        if is_new:
            found = self._reserver.reserve(record)
            if found is None:
                return again, True
            record.promised_at = max(found.at, now)
        if state.ordering.displaces and state.orderings.of(record.group).promotes:
            at_once = at_once or record.work <= SMALL_WORK_S * capacity_of_pool(state, record)
        return now if at_once else min(max(record.promised_at, now), again), is_new

    def _was_enough_idle(self, record: JobRecord, waited_s: float, own_s: float) -> bool:
        """Whether a job has waited beside so many idle cards that it goes first now."""
        state = self._state
        if self._bounded and not admitted_tasks(state, record):
            record.idled_before = state.idle_time.of(record.job.pool, state.now)  # those cards were not for it
            return False
        if waited_s < IDLE_LENGTH * own_s or record.gpu_milli < CARD_MILLI:
            return False  # what needs less than a card lacks something else
        backlog, _ = state.waiting.backlog.beside(record)
        enough = IDLE_PART * (record.work + IDLE_BACKLOG * backlog)
        return state.idle_time.of(record.job.pool, state.now) - record.idled_before >= enough

    def _bound_s(self, record: JobRecord, own_s: float) -> float:
        """How long a job may wait, by the backlog of now."""
        state, capacity = self._state, capacity_of_pool(self._state, record)
        work, jobs = state.waiting.backlog.beside(record)
        return bound_s(own_s, record.work / capacity, work / capacity, jobs, crowds=state.ordering.displaces)


def bound_s(own_s: float, work_s: float, backlog_s: float, jobs: float, *, crowds: bool) -> float:
    """How long a job may wait, in seconds, until it is promised to go first, or goes first if it is small.

    Args:
        own_s: its own time left.
        work_s, backlog_s: its own work and that of what waits beside it, in seconds of all cards of the pool.
        jobs: how many wait beside it.
        crowds: whether equals displace each other.
    """
    is_small = crowds and work_s <= SMALL_WORK_S
    crowding = (1.0 + (backlog_s / own_s) ** 2) ** (SMALL_CROWDING if is_small else CROWDING) if crowds else 1.0
    return own_s + backlog_s * crowding + (0.0 if is_small else COST_PART * jobs * work_s)
