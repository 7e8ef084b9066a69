"""Work that is there already goes on and grows: suspended jobs resume, elastic gangs get tasks that are missing."""

from __future__ import annotations

from functools import partial

from millpond.model.reasons import Cause
from millpond.model.workloads import JobState
from millpond.scheduling.claims import Claims
from millpond.scheduling.gang_sizes import first_tasks
from millpond.scheduling.nearness import near
from millpond.scheduling.placing import Placer
from millpond.scheduling.state import State
from millpond.scheduling.suspending import resume
from millpond.scheduling.tenancy.admission import is_admitted


def continue_and_grow(state: State, placer: Placer, claims: Claims) -> None:
    """Resume who may go on and can; let running jobs grow as far as their queues and free room allow."""
    for record in [record for record in state.suspended.values() if not record.suspended_by]:
        resume(state, record, Cause.RESUME_REQUESTED)
    for record in list(state.growing.values()):
        if record.state is not JobState.RUNNING:
            continue
        admitted = first_tasks(record.queued(), partial(is_admitted, state, record))
        mates = next(task.holding.node for task in record.tasks if task.holding is not None)
        mask = near(state.cluster, record.job, mates, claims.mask(record))
        placed = placer.place_some(record.job, admitted, mask)
        if placed:
            state.queues.charge(record.queue, state.amount_of(record, [task for task, _ in placed]), 1)
            state.outbox.append(state.start(record, placed, Cause.FITS))
