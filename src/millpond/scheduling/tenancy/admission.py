"""Admission: how much of a job its queue, every queue above, and the limits of its user and group let start now.

A rigid job is admitted whole or not at all. An elastic one may start smaller, with at least the minimum of each role.
If a guarantee covers that minimum the job counts as guaranteed work, and so starts with no more than the same guarantee
covers; it grows into what others leave. Where growth is measured, it starts no larger than its like was worth it.
"""

from __future__ import annotations

from collections.abc import Sequence

from millpond.scheduling.elastic.gang_sizes import most_tasks
from millpond.scheduling.elastic.measured_speed import worth_at_start
from millpond.scheduling.placement.shapes import NO_POOL
from millpond.scheduling.records import JobRecord, TaskRecord
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.queue_node import QueueNode


def is_admitted(state: State, record: JobRecord, tasks: Sequence[TaskRecord]) -> bool:
    """Whether these tasks of a job may hold what they ask for beside all that its queue and its user hold."""
    is_free = record.job.preemptible and not state.has_bounds
    return is_free or state.entitlements.admits(record, record.amount_of(tasks))


def is_guaranteed(state: State, record: JobRecord) -> bool:
    """Whether a waiting job, in its least size, stays within what its queue is guaranteed."""
    queues = state.queues
    return queues.has_guarantees and not state.entitlements.borrows(record, record.demand.least_amount)


def limit_in_the_way(state: State, record: JobRecord) -> QueueNode | None:
    """The queue whose limit, or guarantee that it may not exceed, keeps out even the least size of a waiting job."""
    return state.entitlements.limiting(record, record.demand.least_amount)


def is_limited_by_user(state: State, record: JobRecord) -> bool:
    """Whether the limit of its user or its group keeps out even the least size of a waiting job."""
    return state.entitlements.exceeded(record, record.demand.least_amount) is not None


def is_held_for_good(state: State, record: JobRecord) -> bool:
    """Whether a waiting job would never give back what others are guaranteed: it is not preemptible."""
    return not record.job.preemptible and state.entitlements.blocks_guarantees(record, record.demand.least_amount)


def admitted_tasks(state: State, record: JobRecord) -> list[TaskRecord]:
    """The tasks with which a waiting job may start now; empty when not even its least size is admitted."""
    queued = record.queued()
    if not record.elastic:
        return queued if is_admitted(state, record, queued) else []
    if (pool := state.cluster.pools.get(record.job.pool)) is not None and pool.measured_growth:
        queued = worth_at_start(record, queued, state.known_speeds.of(record))
    if not is_guaranteed(state, record) and is_admitted(state, record, queued):
        return queued

    def is_allowed(tasks: list[TaskRecord]) -> bool:
        return is_covered_alike(state, record, tasks) and is_admitted(state, record, tasks)

    return most_tasks(record.job, queued, is_allowed)


def is_covered_alike(state: State, record: JobRecord, tasks: Sequence[TaskRecord]) -> bool:
    """Whether the guarantee that covers the least size of a waiting job, if one does, covers these of its tasks too."""
    by_choice = zip(
        state.entitlements.choices(record, record.demand.least_amount),
        state.entitlements.choices(record, record.amount_of(tasks)),
        strict=True,
    )
    covered = [
        guarantor.within_guarantee(amount)
        for least, amount in by_choice
        if (guarantor := state.queues.guarantor(record.queue, least)) is not None
    ]
    return not covered or any(covered)


def uses_cells(state: State, record: JobRecord) -> bool:
    """Whether a job is of a queue that is owed cells, or of one below it, and takes whole cards, or parts for good.

    Parts that may be asked to leave go where there is room, as visitors, and are owed what the guarantee counts. Tasks
    without cards go anywhere.
    """
    if not state.cluster.cells.clusters_of(record.queue):
        return False
    shapes = [shape for shape in state.cluster.words.shapes_of(record.demand) if shape.devices]
    if all(shape.whole_cards for shape in shapes):
        return bool(shapes)
    return not record.job.preemptible and not any(shape.pool == NO_POOL for shape in shapes)
