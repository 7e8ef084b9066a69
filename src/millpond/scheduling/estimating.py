"""When will it start? A conservative profile: everybody ahead gets the earliest room, nobody overtakes.

The queue is laid out on a copy of the ledger in its present order, each job holding its room for as long as it is
expected to run. Once with expected lengths and others allowed to slip past (the early end of the interval), once with
cautious lengths and in strict order (the late end). Jobs submitted later are not known; the estimate says so.

Source: conservative backfilling as in Mu'alem and Feitelson, IEEE TPDS 2001.
"""

from __future__ import annotations

import heapq

from millpond.model.reasons import StartEstimate
from millpond.scheduling.holdings import Hold, Holding
from millpond.scheduling.ordering.base import NEVER
from millpond.scheduling.placing import Placer
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.standing import Standing

MOST_AHEAD = 400
"""Jobs ahead in the queue that are laid out; beyond, no upper bound is given."""

MOST_STEPS = 4000
"""Ends of running work that are played through."""


def start_of(state: State, placer: Placer, record: JobRecord) -> StartEstimate | None:
    """The interval in which the job should start; None when nothing is known about what runs."""
    ranked = state.waiting.ranked(Standing(state).rank)
    place = next(index for index, other in enumerate(ranked) if other is record)
    ahead = [other for other in ranked[: place + 1] if other.job.pool == record.job.pool]
    if len(ahead) > MOST_AHEAD:
        return None
    early = _lay_out(state, placer, ahead, cautious=False)
    if early is None:
        return None
    late = _lay_out(state, placer, ahead, cautious=True)
    count = len(state.running)
    known = sum(other.expected_s is not None or other.job.time_limit_s is not None for other in state.running.values())
    basis = (
        f"{count} running job{'s' * (count != 1)} ({known} with a forecast or time limit, the rest from history), "
        f"{len(ahead) - 1} ahead in its pool; later arrivals are not counted"
    )
    return StartEstimate(early, None if late is None else max(late, early), basis)


def _lay_out(state: State, placer: Placer, ahead: list[JobRecord], *, cautious: bool) -> float | None:
    """When the last of ``ahead`` starts if nothing else happens; None if it never does."""
    ordering = state.ordering
    end_of = ordering.cautious_end if cautious else ordering.expected_end
    ends: list[tuple[float, int, list[Holding]]] = []
    for number, running in enumerate(state.running.values()):
        held = [task.holding for task in running.tasks if task.holding is not None]
        end = end_of(running, state.now)
        if held and end < NEVER:
            ends.append((end, number, held))
    heapq.heapify(ends)
    waiting = list(ahead)
    number = len(state.running)
    now = state.now
    mark = state.journal.begin()
    try:
        for _ in range(MOST_STEPS):
            blocked: set[object] = set()
            still: list[JobRecord] = []
            for position, record in enumerate(waiting):
                kind = record.line
                placed = None if kind in blocked else placer.place(record)
                if placed is None:
                    if cautious:
                        still.extend(waiting[position:])
                        break
                    blocked.add(kind)
                    still.append(record)
                    continue
                if record is ahead[-1]:
                    return now
                length = max(end_of(record, state.now) - state.now, 0.0)
                if length < NEVER:
                    heapq.heappush(ends, (now + length, number, [holding for _, holding in placed]))
                    number += 1
            waiting = still
            if not ends:
                return None
            now, _, held = heapq.heappop(ends)
            now = max(now, state.now)
            for holding in held:
                state.cluster.change(holding, Hold.NOTHING)
        return None
    finally:
        state.journal.rollback(mark)
