"""A twin of a scheduler, made by copying: arrays as they are, and a record of each job that lives.

It goes on as a scheduler that was restored from a snapshot does, for a fiftieth of the time; a change of policy is a
twin under other policies. What never changes is shared: jobs as they were submitted, placements, decisions, and records
of jobs that have ended.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from millpond.scheduling.cycle.claims import Claims
from millpond.scheduling.cycle.job_placement import Placer
from millpond.scheduling.event_handling.event_handlers import EventHandlers
from millpond.scheduling.feasibility.request_classes import RequestClass
from millpond.scheduling.reclaiming.roster import SLOT_BIN
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State

TwinOf = Callable[[JobRecord], JobRecord]


class Parts(NamedTuple):
    """Those parts of a scheduler that remember anything."""

    state: State
    placer: Placer
    claims: Claims
    event_handlers: EventHandlers


def fork(source: Parts, twin: Parts) -> None:
    """Fill parts that were made under the same settings so that they go on where the source is."""
    with _collector_paused():
        twin_of = _copy_places_and_jobs(source, twin)
        before, state = source.state, twin.state
        state.ordering.restore(before.ordering.snapshot())
        state.waiting.copy_from(before.waiting, twin_of)
        state.roster.copy_from(before.roster, twin_of)
        state.fresh = [twin_of(record) for record in before.fresh]
        state.looks = [(at, sequence, twin_of(record)) for at, sequence, record in before.looks]
        state.rekeys = [(at, sequence, twin_of(record)) for at, sequence, record in before.rekeys]
        twin.claims.copy_from(source.claims, twin_of)
        twin.placer.selector.use_tables(source.placer.selector.tables)
        twin.placer.tables_stale = source.placer.tables_stale


def go_on_under_other_policies(source: Parts, twin: Parts) -> None:
    """Fill parts that were made under other policies.

    What only the old policies knew is left behind: keys, reservations, and what another ordering knew of what arrives.
    """
    with _collector_paused():
        twin_of = _copy_places_and_jobs(source, twin)
        before, state = source.state, twin.state
        twin.claims.copy_from(source.claims, twin_of)
        twin.claims.forget_plans()
        if state.settings.ordering == before.settings.ordering:
            state.ordering.restore(before.ordering.snapshot())
            state.roster.copy_from(before.roster, twin_of)
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
        for record in before.jobs.values():
            if record.line:
                state.enqueue(twin_of(record))
        twin.placer.rebuild(stale=source.placer.tables_stale)


def _copy_places_and_jobs(source: Parts, twin: Parts) -> TwinOf:
    """All that no policy changes; returns who is whose twin."""
    before, state = source.state, twin.state
    source.claims.prune()
    state.now, state.decided_at = before.now, before.decided_at
    state.next_decision, state.next_sequence = before.next_decision, before.next_sequence
    state.protects, state.is_unfinished = before.protects, before.is_unfinished
    state.holds, state.unlent = dict(before.holds), set(before.unlent)
    state.cluster.copy_from(before.cluster)
    state.cordons.copy_from(before.cordons)
    state.queues.copy_from(before.queues)
    state.limits.copy_from(before.limits)
    state.usage.restore(before.usage.snapshot())
    state.preemption_budget.restore(before.preemption_budget.snapshot())
    state.outbox, state.pending = list(before.outbox), before.pending.copy()
    twin.event_handlers.nodes.load = dict(source.event_handlers.nodes.load)
    twin.placer.mix.copy_from(source.placer.mix)
    twin.placer.selector.rounds = source.placer.selector.rounds
    if twin.placer.affinities is not None and source.placer.affinities is not None:
        twin.placer.affinities.by_node = dict(source.placer.affinities.by_node)
    twin_of = _copy_jobs(before, state)
    state.arrivals.copy_from(before.arrivals, state.jobs)
    return twin_of


def _copy_jobs(before: State, state: State) -> TwinOf:
    demands: dict[RequestClass, RequestClass] = {}
    twins: dict[JobRecord, JobRecord] = {}
    for job, record in before.jobs.items():
        if record.state.ended:
            state.jobs[job] = record
            continue
        demand = demands.get(record.demand)
        if demand is None:
            demand = demands[record.demand] = state.demands.of(record.job)
        state.jobs[job] = twins[record] = record.copy(demand)

    def twin_of(record: JobRecord) -> JobRecord:
        return twins.get(record, record)

    def twins_of(records: Iterable[JobRecord]) -> dict[str, JobRecord]:
        return {record.id: twins[record] for record in records}

    state.running, state.suspended = twins_of(before.running.values()), twins_of(before.suspended.values())
    state.kept, state.growing = twins_of(before.kept.values()), twins_of(before.growing.values())
    state.elastic = twins_of(before.elastic.values())
    state.deadlines = list(before.deadlines)
    state.paused = [(at, sequence, twin_of(record)) for at, sequence, record in before.paused]
    state.window_changes = [(at, sequence, twin_of(record)) for at, sequence, record in before.window_changes]
    return twin_of


@contextmanager
def _collector_paused() -> Iterator[None]:
    """All that is made is kept: to look for garbage among it meanwhile would take longer than to make it."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
