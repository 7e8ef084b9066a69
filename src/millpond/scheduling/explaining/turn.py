"""The state as the cycle finds it when the turn of a waiting job comes: what is claimed, and what binds the job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from millpond.scheduling.cycle.claims import Claims
from millpond.scheduling.records import JobRecord
from millpond.scheduling.reserving.counted_reservations import charge_ahead_of, charge_in_turn_of, fits_amount_ahead
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.admission import admitted_tasks
from millpond.scheduling.tenancy.queue_rank import QueueRank
from millpond.scheduling.tenancy.windows import lending_ends, outlasts_lending


@contextmanager
def turn_of(state: State, claims: Claims, record: JobRecord) -> Iterator[None]:
    """In here quotas count what is claimed for others, and a reservation binds the job if its holder comes first.

    That holder has found no room; who is not admitted, or held back, has a reservation of an earlier cycle at most.

    All changes are undone at the end.
    """
    mark = state.journal.begin()
    claims.charge(1, but=record.id)
    if state.reserved.by_name:
        charge_in_turn_of(state, record)
    claims.begin_walk()
    kept = claims.reservations.get(record.job.pool)
    holder = record if kept is None else state.jobs[kept.job]
    if not holder.line or (admitted_tasks(state, holder) and not state.holds_back(holder)):
        claims.bind(record, QueueRank(state))
    try:
        yield
    finally:
        claims.end_walk()
        state.journal.rollback(mark)


@contextmanager
def reservations_ahead_of(state: State, record: JobRecord) -> Iterator[None]:
    """In here those reservations count, in the turn of a job, that begin while it would run and alone keep it out."""
    mark = state.journal.begin()
    if state.reserved.by_name:
        charge_ahead_of(state, record)
    try:
        yield
    finally:
        state.reserved.counted_ahead = []
        state.journal.rollback(mark)


def first_in_the_way(state: State, claims: Claims, record: JobRecord) -> JobRecord | None:
    """The job behind which this one waits under a strict ordering, the cluster's or their own, if it is ahead of it.

    It is the first that its queue, its user and the hour admit, beside reservations to come too, and that has no claim:
    the cycle found no room for it. A job that starts on reserved cards alone waits for these, and behind nobody.
    """
    is_own = state.orderings.of(record.group).strict and record.group is not None
    may_go_first = state.reserved.required_by(record.job) is not None or any(
        state.unused_of(room).gpu_milli >= record.demand.least_amount.gpu_milli
        for room in state.reserved.open_to(record, state.now)
    )
    if not (is_own or state.ordering.strict) or record.job.is_background or may_go_first:
        return None
    for other in state.waiting.ranked(QueueRank(state).place_of):
        if other is record:
            return None
        binds = other.job.pool == record.job.pool if state.ordering.strict else other.group == record.group
        if binds and other.id not in claims.by_job and _finds_no_room(state, other):
            return other
    return None


def _finds_no_room(state: State, record: JobRecord) -> bool:
    """Whether nothing but room keeps out one who waits."""
    end = lending_ends(state).get(record.job.pool)
    if end is not None and outlasts_lending(state, record, end):
        return False
    is_admitted = bool(admitted_tasks(state, record))
    reserved = state.reserved.by_name
    return is_admitted and (not reserved or fits_amount_ahead(state, record, record.demand.least_amount))
