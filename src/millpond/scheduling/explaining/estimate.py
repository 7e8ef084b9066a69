"""The estimated start of a job by a conservative profile: each job ahead gets the earliest room, none overtakes.

The queue is laid out on a copy of the ledger in its present order, each job holding its room for as long as it is
expected to run. Once with expected lengths and others allowed to slip past (the early end of the interval), once with
cautious lengths and in strict order (the late end). Nodes close and open on the way by their cordons. Jobs
submitted later are not known; the estimate says so.

Source: conservative backfilling as in Mu'alem and Feitelson, IEEE TPDS 2001.
"""

from __future__ import annotations

import heapq
from typing import Self

import numpy as np

from millpond.model import windows
from millpond.model.reasons import StartEstimate
from millpond.scheduling.cycle.job_placement import NodeMask, Placer
from millpond.scheduling.ledger.holdings import Holding, HoldState
from millpond.scheduling.nodes.cordon import stays_until
from millpond.scheduling.ordering.base import NEVER
from millpond.scheduling.records import BY_REQUEST, JobRecord
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.queue_rank import QueueRank

MOST_AHEAD = 400
"""Jobs ahead in the queue that are laid out; beyond, no upper bound is given."""

MOST_STEPS = 4000
"""Ends of running work that are played through."""


def start_of(state: State, placer: Placer, record: JobRecord) -> StartEstimate | None:
    """The interval in which the job should start; None when nothing is known about what runs."""
    ranked = state.waiting.ranked(QueueRank(state).rank)
    place = next(index for index, other in enumerate(ranked) if other is record)
    ahead = [other for other in ranked[: place + 1] if other.job.pool == record.job.pool]
    if len(ahead) > MOST_AHEAD:
        return None
    running = [other for other in state.running.values() if other.suspended_by != BY_REQUEST]
    count = len(running)
    known = sum(_is_foretold(other, state.now) for other in running)
    if running and not known:
        return None
    early = _lay_out(state, placer, ahead, cautious=False)
    if early is None:
        return None
    late = _lay_out(state, placer, ahead, cautious=True)
    basis = (
        f"{count} running job{'s' * (count != 1)} ({known} with a forecast or time limit, the rest from history), "
        f"{len(ahead) - 1} ahead in its pool; later arrivals are not counted"
    )
    return StartEstimate(early, None if late is None else max(late, early), basis)


def _is_foretold(record: JobRecord, now: float) -> bool:
    """Whether a time limit, a forecast that it has not outrun, or how long it is kept says when a running job ends."""
    if record.kept is not None:
        return True
    forecast = record.cautious_s if record.cautious_s is not None else record.expected_s
    return record.job.time_limit_s is not None or (forecast is not None and record.service_s(now) < forecast)


def _lay_out(state: State, placer: Placer, ahead: list[JobRecord], *, cautious: bool) -> float | None:
    """When the last of ``ahead`` starts if nothing else happens; None if it never does."""
    waiting = list(ahead)
    with _Timeline(state, cautious=cautious) as course:
        for _ in range(MOST_STEPS):
            blocked: set[object] = set()
            still: list[JobRecord] = []
            for position, record in enumerate(waiting):
                kind = record.line
                placed = None if kind in blocked else placer.place(record, course.mask(record))
                if placed is None:
                    if cautious:
                        still.extend(waiting[position:])
                        break
                    blocked.add(kind)
                    still.append(record)
                    continue
                if record is ahead[-1]:
                    return course.now
                course.start(record, [holding for _, holding in placed])
            waiting = still
            if not course.go_on():
                return None
        return None


class _Timeline:
    """What happens by itself on the ledger, from end to end of work, and as nodes close and open.

    All of it in a trial that is rolled back.
    """

    def __init__(self, state: State, *, cautious: bool) -> None:
        self._state = state
        self._end_of = state.ordering.cautious_end if cautious else state.ordering.expected_end
        self._ends: list[tuple[float, int, list[Holding]]] = []
        self._flips = state.cordons.flips(state.now)
        self._number = 0
        self._mark = 0
        self.now = state.now

    def __enter__(self) -> Self:
        state = self._state
        for running in state.running.values():
            if running.suspended_by == BY_REQUEST:
                continue  # it ends only after it has been resumed, at an unknown instant
            held = [task.holding for task in running.tasks if task.holding is not None]
            if held:
                kept = running.kept
                ends_at = self._end_of(running, state.now) if kept is None else kept.kept_until or NEVER
                self._end(min(ends_at, self._asked_to_leave(running)), held)
        self._flips.reverse()
        self._mark = state.journal.begin()
        return self

    def __exit__(self, *_: object) -> None:
        self._state.journal.rollback(self._mark)

    def start(self, record: JobRecord, held: list[Holding]) -> None:
        """A job has been placed: it ends after its length."""
        self._end(self.now + max(self._end_of(record, self._state.now) - self._state.now, 0.0), held)

    def _end(self, at: float, held: list[Holding]) -> None:
        if at < NEVER:
            heapq.heappush(self._ends, (at, self._number, held))
        self._number += 1

    def go_on(self) -> bool:
        """Go to the next instant at which anything changes; False when nothing does any more."""
        state = self._state
        if self._flips and (not self._ends or self._flips[-1].at <= self._ends[0][0]):
            flip = self._flips.pop()
            self.now = max(flip.at, state.now)
            state.cluster.set_closed(flip.node, flip.closed)
            return True
        if not self._ends:
            return False
        at, _, held = heapq.heappop(self._ends)
        self.now = max(at, state.now)
        for holding in held:
            state.cluster.change(holding, HoldState.NOTHING)
        return True

    def mask(self, record: JobRecord) -> NodeMask | None:
        """(nodes,), 0 where a node closes before the job, started now, would leave it."""
        if not self._flips:
            return None
        state = self._state
        leaves = self.now + stays_until(record, state.ordering, state.now) - state.now
        index = state.cluster.node_index
        shut = [index[flip.node] for flip in self._flips if flip.closed and flip.at < leaves and flip.node in index]
        if not shut:
            return None
        mask: NodeMask = np.ones(state.cluster.arrays.node_count, dtype=np.uint8)
        mask[shut] = 0
        return mask

    def _asked_to_leave(self, running: JobRecord) -> float:
        """When its window closes, or a node that the job runs on is emptied next; ``NEVER`` when it may stay."""
        state = self._state
        if running.job.windows and state.is_in_window(running):
            return windows.closes_at(running.job.windows, state.now) or NEVER
        if not running.job.preemptible or not state.cordons.by_node:
            return NEVER
        nodes = {task.placement.node for task in running.tasks if task.placement is not None}
        drains = [each.begin for node in nodes for each in state.cordons.by_node.get(node, ()) if each.drain]
        return min((begin for begin in drains if begin > state.now), default=NEVER)
