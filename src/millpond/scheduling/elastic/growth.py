"""Work that is there already goes on and grows: suspended jobs resume, elastic gangs get tasks that are missing.

A suspended job goes on before its equals that wait, for it holds memory until it has ended, and after higher classes.
A gang grows after all waiting jobs that go before it by guarantee, class of priority and service of queues, and before
its equals, which would otherwise keep it from ever growing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from millpond.model.reasons import Cause
from millpond.model.states import JobState
from millpond.scheduling import runs
from millpond.scheduling.cycle.claims import Claims, both
from millpond.scheduling.cycle.job_placement import Placed, Placer
from millpond.scheduling.cycle.places_in_cells import grow_in_cells
from millpond.scheduling.elastic.gang_sizes import first_tasks
from millpond.scheduling.elastic.measured_speed import worth_having
from millpond.scheduling.migration.migrations import Migrations
from millpond.scheduling.nodes.topology_groups import near
from millpond.scheduling.placement.arrays import NodeMask
from millpond.scheduling.records import JobRecord, TaskRecord
from millpond.scheduling.reserving.counted_reservations import fits_ahead
from millpond.scheduling.state import State
from millpond.scheduling.suspension.suspension import is_leaving, resume
from millpond.scheduling.tenancy.admission import is_admitted
from millpond.scheduling.tenancy.queue_rank import QueueRank, Rank

RESUMED_PER_CYCLE = 1024
"""How many suspended jobs go on in one cycle: a bound on work. The next one follows at once."""


def resume_suspended(
    state: State, claims: Claims, migrations: Migrations, least_class: int, *, lent: bool = True
) -> list[JobRecord]:
    """Let suspended work of this class or a higher one go on that may and can, but not into room that is claimed.

    Where its own devices are taken, swapped work goes on with others of its node if its engine can do that.
    Nor does work go on that has just left for a job that has not started yet. Returns those that may and cannot;
    where more may go on than one cycle lets, ``state.is_unfinished``.

    Args:
        lent: those go on too whose room was taken back by a queue that it was guaranteed to.
    """
    left, resumed = [], 0
    for record in [record for record in state.suspended.values() if not record.suspended_by]:
        if resumed == RESUMED_PER_CYCLE:
            state.is_unfinished = True
            break
        if record.job.priority < least_class or (record.suspended_why is Cause.RECLAIMED and not lent):
            continue
        if claims.are_on_nodes_of(record) or claims.have_asked(record):
            continue
        if state.growing and record.job.is_background and is_leaving(record):
            continue  # for a gang that grows, which has no claim
        by_request = record.suspended_why in (None, Cause.SUSPEND_REQUESTED)
        cause = Cause.RESUME_REQUESTED if by_request else Cause.FITS
        if resume(state, record, cause) or migrations.come_back(record, cause):
            claims.drop(record.id)
            resumed += 1
            continue
        left.append(record)
        own = claims.by_job.get(record.id)
        if own is not None and claims.is_settled(record.id, own):
            claims.drop(record.id)  # all have left that were asked to, and something else is in its way
    return left


def in_order(state: State, standing: QueueRank) -> list[tuple[Rank, JobRecord]]:
    """Running gangs that miss tasks, with their ranks, the last of them first."""
    gangs = [record for record in state.growing.values() if record.state is JobState.RUNNING]
    return sorted(((standing.rank_of_growth(gang), gang) for gang in gangs), key=lambda pair: pair[0])[::-1]


def grow(state: State, placer: Placer, claims: Claims, record: JobRecord) -> Placed:
    """Take holdings for as many missing tasks as quota and free room allow, in the open transaction."""
    admitted = first_tasks(missing_tasks(state, record), partial(may_join, state, record))
    mask = mask_for_growth(state, claims, record)
    placed = grow_in_cells(state, record, admitted, mask_for_growth(state, claims, record, in_cells=True))
    mark = state.journal.begin()
    in_cells = {task.number for task, _ in placed}
    rest = [task for task in admitted if task.number not in in_cells]
    beside = placer.place_some(record, rest, mask, beside=placed)
    grown = state.amounts.of_placed(record, placed + beside)
    is_within = not state.queues.counts_cards or state.entitlements.keeps_limits(record, grown)
    if is_within and state.settle(record, [holding for _, holding in beside]):
        placed += beside
        state.journal.commit()
    else:
        state.journal.rollback(mark)
    if placed:
        state.charge(record, state.amounts.of_placed(record, placed), 1)
    return placed


def may_join(state: State, record: JobRecord, tasks: Sequence[TaskRecord]) -> bool:
    """Whether quotas let these tasks join a running gang, beside what is reserved for later too."""
    return is_admitted(state, record, tasks) and fits_ahead(state, record, tasks)


def missing_tasks(state: State, record: JobRecord) -> list[TaskRecord]:
    """The tasks that a running gang misses and that may join it: where its speed counts, as many as are worth it.

    It does as soon as it, or its like, was measured; a gang whose program reports nothing grows as it can.
    """
    missing = [task for task in record.queued() if task.holding is None]
    if not state.cluster.pools[record.job.pool].measured_growth:
        return missing
    return worth_having(record, missing) if record.speeds or state.known_speeds.of(record) else missing


def mask_for_growth(state: State, claims: Claims, record: JobRecord, *, in_cells: bool = False) -> NodeMask | None:
    """(nodes,), 0 where no task may join a running gang, or none in cells that its queue is owed."""
    mates = next(task.holding.node for task in record.tasks if task.holding is not None)
    beside = claims.mask_of_others(record) if in_cells else claims.mask(record)
    return near(state.cluster, record.job, mates, both(claims.mask_for_cells(record), beside))


def grow_all(state: State, placer: Placer, claims: Claims) -> None:
    """Let all running gangs grow, where no job waits that might go first."""
    gangs = in_order(state, QueueRank(state)) if state.growing else []
    while gangs:
        _, record = gangs.pop()
        placed = grow(state, placer, claims, record)
        if placed:
            state.outbox.append(runs.start(state, record, placed, Cause.FITS))
