"""Runs of jobs begin and end: what is decided, and what the ledger, quotas and waiting lines follow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from millpond.model.amounts import seconds_text
from millpond.model.decisions import Grant, Placement, Start, Stop
from millpond.model.reasons import Cause
from millpond.model.states import JobState, TaskState
from millpond.scheduling.ledger.holdings import Holding, HoldState
from millpond.scheduling.lifecycle import Trigger
from millpond.scheduling.ordering.queueing import enqueue, pause, pause_until, restart_wait
from millpond.scheduling.packing.pairs import end_pair
from millpond.scheduling.reclaiming.preemption_budget import cost_of
from millpond.scheduling.records import JobRecord, Migration, MigrationStage, TaskRecord
from millpond.scheduling.state import ACTIVE, State

_INTERRUPTING = frozenset(
    {
        Cause.DRAINED,
        Cause.MIGRATED,
        Cause.CONSOLIDATED,
        Cause.BALANCED,
        Cause.PACKED,
        Cause.UNPACKED,
        Cause.CARD_MEMORY_FULL,
        Cause.OWN_CARDS_FREE,
        Cause.WINDOW_CLOSED,
        Cause.LENDING_OVER,
        Cause.RESERVATION,
        Cause.REQUEUED,
    }
)
"""Why a run ends that goes on later and counts neither as preempted nor as failed."""
MOVING = frozenset({Cause.MIGRATED, Cause.CONSOLIDATED, Cause.BALANCED})
"""Why a run ends whose job is to go on with other cards, and the next one begins."""


def start(
    state: State,
    record: JobRecord,
    placed: Sequence[tuple[TaskRecord, Holding]],
    cause: Cause,
    load_milli: int | None = None,
) -> Start:
    """Commit a start whose holdings and queue charge are already taken; ``load_milli`` is for the decision."""
    state.journal.require_no_trial()
    joins = record.id in state.running
    if not joins:
        state.waiting.remove(record)
        record.attempt += 1
        record.began_at, record.left_at, record.suspended_s = None, None, 0.0
        record.line = ()
        record.promised_at = 0.0
        record.renumber()
        record.suspend_refused = False
        if record.migration is not None:
            record.migration = _restarted(record.migration, cause)
        for task in record.tasks:
            task.outcome = task.exit_code = None
        state.running[record.id] = record
        if record.elastic:
            state.elastic[record.id] = record
    placements = []
    state.settle(record, [holding for _, holding in placed])
    for task, holding in placed:
        task.move(Trigger.START_DECIDED)
        placements.append(take_place(state, record, task, holding))
        task.outcome = task.exit_code = None
        task.device_failed = False
    if state.ordering.needs_usage:
        state.use(record, record.amount_of([task for task, _ in placed]), 1)
    record.refresh()
    if joins or len(placed) < len(record.tasks):
        if record.slot >= 0:
            state.enroll(record)
        state.watch_growth(record)
    number = state.next_id()
    if not joins:
        record.placed_by, record.took_back = number, cause is Cause.RECLAIMED
    decision = Start(number, record.id, record.attempt, cause, tuple(placements), joins, load_milli)
    state.expect_answer(decision)
    return decision


def take_place(state: State, record: JobRecord, task: TaskRecord, holding: Holding) -> Placement:
    """A task has this holding, which the ledger counts already, and no other; returns it in the words of a decision."""
    task.holding = holding
    task.placement = placed = _placement_of(state, task, holding)
    state.placed.note(record.id, placed.node)
    return placed


def _placement_of(state: State, task: TaskRecord, holding: Holding) -> Placement:
    cluster, shape = state.cluster, holding.shape
    ids, compute, limit = cluster.device_ids, shape.compute_milli, shape.limit_milli
    grants = [
        Grant(ids[device], compute, limit, memory)
        for device, memory in zip(holding.devices, holding.memory_mib, strict=True)
    ]
    return Placement(task.number, task.role, cluster.node_name(holding.node), tuple(grants))


def holding_at(state: State, record: JobRecord, task: TaskRecord, node: str, devices: Iterable[str]) -> Holding:
    """What a task takes on a node and devices that are there, by their names; not yet taken."""
    cluster = state.cluster
    shape = cluster.words.shapes_of(record.demand)[task.role_index]
    return cluster.holding(cluster.node_index[node], shape, [cluster.device_index[device] for device in devices])


def _restarted(migration: Migration, cause: Cause) -> Migration | None:
    """The migration that a run which begins now completes; None if its job began anew for another cause."""
    return replace(migration, stage=MigrationStage.DONE) if cause in MOVING else None


def stop(
    state: State,
    record: JobRecord,
    trigger: Trigger,
    cause: Cause,
    *,
    tasks: Sequence[TaskRecord] = (),
    for_job: str = "",
) -> None:
    """Decide the end of a job's run (or of some of its tasks); they hold everything until they have ended.

    A run that is to end for good is not brought back by a reason to run it again.

    Args:
        trigger: what becomes of the tasks once they have ended.
    """
    chosen = [task for task in (tasks or record.tasks) if task.state in ACTIVE and task.state is not TaskState.STOPPING]
    whole, kept = not tasks, record.kept
    if whole:
        if cause is Cause.PREEMPTED and for_job and state.jobs[for_job].job.priority == record.job.priority:
            state.preemption_budget.spend(cost_of(record, state.settings.preemption_cost, state.now))
        if cause is Cause.RECLAIMED:
            record.left_for = for_job
        decide_fate(state, record, trigger, cause)
    if not chosen:
        return
    for task in chosen:
        task.move(Trigger.STOP_DECIDED)
    record.refresh()
    numbers = () if whole and kept is None else tuple(task.number for task in chosen)
    grace = record.job.checkpoint.grace_s if kept is None else 0.0
    state.emit(Stop(state.next_id(), record.id, record.attempt, cause, numbers, grace, for_job))


def stop_at_limit(state: State, record: JobRecord) -> None:
    """Decide the end of a run that has reached its time limit."""
    for task in record.tasks:
        task.detail = f"it reached its time limit of {seconds_text(record.job.time_limit_s or 0.0)}"
    stop(state, record, Trigger.ENDED_BADLY, Cause.TIME_LIMIT)


def decide_fate(state: State, record: JobRecord, trigger: Trigger, cause: Cause) -> None:
    """Decide what becomes of the tasks of a run once they have ended: nothing joins it, or is asked of it, now."""
    state.journal.require_no_trial()
    if record.stop_trigger is None or trigger is not Trigger.ENDED_FOR_RETRY:
        record.stop_trigger, record.stop_cause = trigger, cause
    state.roster.remove(record)
    for jobs in (state.growing, state.suspended, state.kept):
        jobs.pop(record.id, None)


def release(state: State, record: JobRecord, task: TaskRecord) -> None:
    """A task holds nothing any more."""
    state.journal.require_no_trial()
    if task.vacating is not None:
        state.cluster.change(task.vacating, HoldState.NOTHING)
        task.vacating = None
    holding = task.holding
    if holding is None:
        return
    state.count(record, state.amounts.held(record, (task,)), -1)
    state.cluster.change(holding, HoldState.NOTHING)
    task.holding = None


def close(state: State, record: JobRecord) -> None:
    """No task of the job holds anything any more: the run is over; the job waits again or has ended."""
    state.journal.require_no_trial()
    if record.started_at is not None or record.id in state.suspended:
        record.failed_starts = 0  # what was refused was growth, not this run
    state.limits.count(record, -1)
    for jobs in (state.running, state.suspended, state.kept, state.elastic, state.growing):
        jobs.pop(record.id, None)
    end_pair(state, record)
    state.roster.remove(record)
    record.started_at = None
    displaced = record.stop_cause in (Cause.PREEMPTED, Cause.RECLAIMED, Cause.SUSPENDED_TOO_LONG)
    interrupted = displaced or record.stop_cause in _INTERRUPTING
    if record.stop_trigger is not None:
        _settle_queued(record)
    record.stop_trigger = record.stop_cause = None
    record.refresh()
    if not record.is_parked:
        record.suspended_by = ""
    if record.state is JobState.QUEUED:
        for task in record.wanted():
            if task.state.ended:
                task.move(Trigger.ENDED_FOR_RETRY)
        restart_wait(state, record)
        record.overdue = record.overdue and interrupted
        record.debt_s = 0.0
        if displaced:
            record.preemptions += 1
        if interrupted:
            record.debt_s = state.settings.preemption_cost.of(record.gpu_milli)
        state.ordering.left(record, state.now)
        if record.scaled_to_zero:
            return
        if record.failed_starts:
            pause(state, record)
        elif record.retry_at > state.now:
            pause_until(state, record, record.retry_at)
        else:
            enqueue(state, record)
    else:
        record.ended_at = state.now
        state.ordering.left(record, state.now)


def _settle_queued(record: JobRecord) -> None:
    """Tasks that wait (to join, or to run again) share the fate that was decided for the whole job."""
    if record.stop_trigger is Trigger.ENDED_CANCELLED:
        trigger = Trigger.CANCELLED_WAITING
    elif record.stop_trigger is Trigger.ENDED_BADLY:
        trigger = Trigger.ENDED_BADLY
    elif record.stop_trigger is Trigger.ENDED_WELL:
        for task in record.queued():
            task.dismiss()
        return
    else:
        return
    for task in record.queued():
        task.move(trigger)
