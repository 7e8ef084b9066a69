"""A twin of a scheduler, made by copying: arrays as they are, and a record of each job that lives.

It goes on as a scheduler that was restored from a snapshot does, for a fiftieth of the time. What never changes is
shared: jobs as they were submitted, placements, decisions, and records of jobs that have ended. What few twins come to
look at, or to change, is common until then: the tasks of each job (``JobRecord.tasks``), the tables of the roster. A
change of policy is a twin under other policies that takes all jobs over.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from millpond.model.states import ENDED_JOBS
from millpond.scheduling.cycle.claims import Claims
from millpond.scheduling.cycle.job_placement import Placer
from millpond.scheduling.feasibility.request_classes import RequestClass
from millpond.scheduling.ordering.queueing import enqueue
from millpond.scheduling.reclaiming.roster import SLOT_BIN
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State

Heap = list[tuple[float, int, JobRecord]]

LOOK_AFTER = 1_000_000
"""So many objects more between forks, and the garbage collector looks at all there are."""

_made_between: int | None = None
"""None: there was no fork yet."""


class Parts(NamedTuple):
    """Those parts of a scheduler that remember anything."""

    state: State
    placer: Placer
    claims: Claims


def fork(source: Parts, twin: Parts) -> None:
    """Fill parts that were made under the same settings so that they go on where the source is."""
    with _collector_paused():
        _copy_places(source, twin)
        before, state = source.state, twin.state
        _copy_jobs(before, state)
        state.ordering.restore(before.ordering.snapshot())
        state.waiting.copy_from(before.waiting, state.jobs)
        state.roster.copy_from(before.roster, state.jobs)
        state.fresh = [record if record.state in ENDED_JOBS else state.jobs[record.id] for record in before.fresh]
        state.looks, state.rekeys = list(before.looks), list(before.rekeys)
        twin.claims.copy_from(source.claims)
        twin.placer.use_tables_of(source.placer)
        twin.placer.tables_stale = source.placer.tables_stale


def go_on_under_other_policies(source: Parts, twin: Parts) -> None:
    """Fill parts that were made under other policies; the source is no longer used, so its jobs are taken over.

    What only the old policies knew is left behind: keys, reservations, and what another ordering knew of what arrives.
    """
    with _collector_paused():
        before, state = source.state, twin.state
        counts_otherwise = before.ordering.needs_usage is not state.ordering.needs_usage
        if counts_otherwise:
            before.use_of_all(-1)
        _copy_places(source, twin)
        _take_over_jobs(before, state)
        if counts_otherwise:
            state.use_of_all(1)
        twin.claims.copy_from(source.claims)
        twin.claims.forget_plans()
        if type(state.ordering) is type(before.ordering):
            state.ordering.restore(before.ordering.snapshot())
            state.roster.copy_from(before.roster, state.jobs)
            before.roster.leave_tables()
        else:
            state.ordering.time_left.restore(before.ordering.time_left.snapshot())
            state.roster.widen(before.roster.width)
            for record in state.running.values():
                if record.started_at is not None:
                    state.ordering.started(record, state.now)
                if record.slot >= 0:
                    record.bins_outlived = int(before.roster.slots[SLOT_BIN, record.slot])
                    record.slot = -1
                    state.enroll(record)
        for record in state.jobs.values():
            if record.line:
                record.line = ()
                enqueue(state, record)
        twin.placer.rebuild(stale=source.placer.tables_stale)


def _copy_places(source: Parts, twin: Parts) -> None:
    """All that no policy changes, but for the jobs."""
    before, state = source.state, twin.state
    source.claims.prune()
    state.now, state.decided_at = before.now, before.decided_at
    state.next_decision, state.next_sequence = before.next_decision, before.next_sequence
    state.protects, state.is_unfinished = before.protects, before.is_unfinished
    state.holds, state.entitlements.unlent = dict(before.holds), set(before.entitlements.unlent)
    state.cluster.copy_from(before.cluster)
    state.cordons.copy_from(before.cordons)
    state.card_cordons.copy_from(before.card_cordons)
    state.reserved.copy_from(before.reserved)
    state.queues.copy_from(before.queues)
    state.limits.copy_from(before.limits)
    state.usage.restore(before.usage.snapshot())
    state.preemption_budget.restore(before.preemption_budget.snapshot())
    state.idle_time.restore(before.idle_time.snapshot())
    state.known_speeds.copy_from(before.known_speeds)
    state.moves.copy_from(before.moves)
    state.pair_speeds.copy_from(before.pair_speeds)
    state.caps.copy_from(before.caps)
    state.fetch_waits = dict(before.fetch_waits)
    state.prefetches.copy_from(before.prefetches)
    state.outbox, state.pending = list(before.outbox), before.pending.copy()
    twin.placer.mix.copy_from(source.placer.mix)
    twin.placer.selector.rounds = source.placer.selector.rounds
    if twin.placer.affinities is not None and source.placer.affinities is not None:
        twin.placer.affinities.by_node = dict(source.placer.affinities.by_node)


def _take_over_jobs(before: State, state: State) -> None:
    """Have the jobs of a state that ends."""
    state.cluster.words, state.demands = before.cluster.words, before.demands
    state.jobs.update(before.jobs)
    state.running, state.suspended, state.kept = before.running, before.suspended, before.kept
    state.growing, state.guests, state.arrivals = before.growing, before.guests, before.arrivals
    state.elastic.update(before.elastic)
    state.held, state.verdicts = before.held, before.verdicts
    state.deadlines, state.paused, state.window_changes = before.deadlines, before.paused, before.window_changes


def _copy_jobs(before: State, state: State) -> None:
    """Have twins of all jobs that live; those that have ended are shared."""
    demands: dict[RequestClass, RequestClass] = {}
    jobs = state.jobs
    jobs.update(before.jobs)  # a table that grows is filled twice
    for job, record in before.jobs.items():
        if record.state not in ENDED_JOBS:
            demand = demands.get(record.demand)
            if demand is None:
                demand = demands[record.demand] = state.demands.of(record.job)
            jobs[job] = record.copy(demand)

    def twins_of(records: dict[str, JobRecord]) -> dict[str, JobRecord]:
        twins = dict(records)
        twins.update(zip(records, map(jobs.__getitem__, records), strict=True))
        return twins

    state.running, state.suspended = twins_of(before.running), twins_of(before.suspended)
    state.kept, state.growing, state.guests = map(twins_of, (before.kept, before.growing, before.guests))
    state.elastic.update(twins_of(before.elastic))
    state.held.copy_from(before.held, jobs)
    state.deadlines = list(before.deadlines)
    state.paused = _heap_of_twins(before.paused, jobs)
    state.window_changes = _heap_of_twins(before.window_changes, jobs)
    state.arrivals.copy_from(before.arrivals, jobs)


def _heap_of_twins(heap: Heap, jobs: dict[str, JobRecord]) -> Heap:
    """The same of the twins among ``jobs``; one that has ended is its own, and may have been forgotten."""
    return [(at, sequence, each if each.state in ENDED_JOBS else jobs[each.id]) for at, sequence, each in heap]


@contextmanager
def _collector_paused() -> Iterator[None]:
    """All that is made is kept: to look for garbage among it, meanwhile or soon, would take as long as to make it.

    Nor is it looked for later among what there is now, as among what a server has loaded: it goes with its last
    reference. So that circles in a process that forks often are found, too, it is counted here what was made between
    forks; before the first it was looked for as ever, so that first fork searches nothing.
    """
    global _made_between
    was_enabled = gc.isenabled()
    gc.disable()
    (young, looks, older_looks), (per_look, per_older_look, _) = gc.get_count(), gc.get_threshold()
    made = young + per_look * (looks + per_older_look * older_looks)
    _made_between = 0 if _made_between is None else _made_between + made
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
            if _made_between > LOOK_AFTER:
                _made_between = 0
                gc.unfreeze()
                gc.collect()
        gc.freeze()
