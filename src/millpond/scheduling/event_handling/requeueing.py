"""What users change about a job's wait: it goes back to its queue, or gets another class of priority."""

from __future__ import annotations

from dataclasses import replace

from millpond.model.errors import ConflictError, InvalidInputError
from millpond.model.events import NodeChoiceChanged
from millpond.model.reasons import Cause
from millpond.model.states import JobState
from millpond.model.workloads import GangRule, Job, Priority
from millpond.scheduling import runs
from millpond.scheduling.cycle.claims import Claims
from millpond.scheduling.feasibility.class_infeasibility import class_infeasibility
from millpond.scheduling.ledger.holdings import Holding
from millpond.scheduling.lifecycle import Trigger
from millpond.scheduling.ordering.queueing import enqueue
from millpond.scheduling.records import JobRecord, refuse_kept
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.cells.stakes import class_in_cells, places_on_cards, stake_of
from millpond.scheduling.tenancy.queues import QueueTree


def requeue(state: State, record: JobRecord) -> None:
    """Decide that the run of a job ends, with notice and grace, and that the job waits for another.

    It is no failure and no preemption. A run that is ending already to be run again just does so.

    Raises:
        ConflictError: it has no run, is ending for good, has failed and is kept, is at rest, or others made its pods.
    """
    refuse_kept(record)
    if record.id not in state.running:
        raise ConflictError(f"job {record.id!r} is {record.state.value}", "only a running or suspended job goes back")
    if record.job.gang_rule is GangRule.APART:
        raise ConflictError(f"job {record.id!r} stands for pods that others made", "delete them, and make them again")
    if record.scaled_to_zero:
        raise ConflictError(f"job {record.id!r} is at rest", "it starts anew with its next request")
    if record.stop_trigger not in (None, Trigger.ENDED_FOR_RETRY):
        raise ConflictError(f"job {record.id!r} is being ended", "when it has ended, it can be submitted again")
    record.suspended_by = ""
    if record.state is not JobState.STOPPING:
        runs.stop(state, record, Trigger.ENDED_FOR_RETRY, Cause.REQUEUED)


def with_priority(queues: QueueTree, job: Job, priority: Priority) -> Job:
    """A job with another class of priority; the same object where it has that already.

    Raises:
        ConflictError: it would become background work, or is: that has a queue of its own.
        InvalidInputError: its queue, or one above, does not allow the class.
    """
    if job.priority is priority:
        return job
    if Priority.BACKGROUND in (job.priority, priority):
        name = priority.name.lower()
        raise ConflictError(
            f"job {job.id!r} cannot {'cease to be' if job.is_background else 'become'} background work",
            f"submit it again, with `pond clone {job.id} --set priority={name}`",
        )
    changed = replace(job, priority=priority)
    if (closed := class_infeasibility(queues, changed)) is not None:
        raise InvalidInputError(closed.what, closed.remedy)
    return changed


def change_priority(state: State, claims: Claims, record: JobRecord, priority: Priority) -> None:
    """Give a job that waits or holds something another class of priority: it is lined up, and may be displaced, by it.

    Raises:
        ConflictError, InvalidInputError: as for ``with_priority``.
    """
    changed = with_priority(state.queues, record.job, priority)
    if changed is record.job:
        return
    is_waiting, is_enrolled = bool(record.line), record.slot >= 0
    if is_waiting:
        state.waiting.remove(record)
        record.line = ()
    if is_enrolled:
        state.roster.remove(record)
    record.job = changed
    if is_waiting:
        enqueue(state, record)
    if is_enrolled:
        state.enroll(record)
    _change_in_cells(state, claims, record)
    state.cluster.releases += 1  # those who were passed over for it may go first now


def change_node_choice(state: State, record: JobRecord, event: NodeChoiceChanged) -> None:
    """Line a job that waits up again with another choice of nodes; what holds something keeps its own."""
    if not record.line:
        if record.id not in state.running:
            _choose_nodes(state, record, event)
        return
    state.waiting.remove(record)
    record.line = ()
    _choose_nodes(state, record, event)
    enqueue(state, record)


def _choose_nodes(state: State, record: JobRecord, event: NodeChoiceChanged) -> None:
    record.job = replace(record.job, only_on=event.only_on, spacing=event.spacing)
    record.demand = state.demands.of(record.job)


def _change_in_cells(state: State, claims: Claims, record: JobRecord) -> None:
    """What a job has of cells, or is to get, it has in its new class."""
    claim = claims.by_job.get(record.id)
    holdings: list[Holding] = places_on_cards(record) + ([] if claim is None else [each for _, each in claim.placed])
    rights = [(holding, holding.stake.use) for holding in holdings if holding.stake is not None]
    for holding, use in rights:
        holding.stake = stake_of(record, None if use is None else replace(use, priority=class_in_cells(record)))
    if rights:
        state.cluster.cells.changed()
