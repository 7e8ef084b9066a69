"""Work leaves its devices without ending, and goes on later where it was.

Suspending takes two steps: it is decided, and the devices are free for others once the engine has confirmed it. Going
on takes one, but needs the same devices and the leave of the job's queue.
"""

from __future__ import annotations

from collections.abc import Sequence

from millpond.model.decisions import Resume, Suspend, SuspendMode
from millpond.model.reasons import Cause
from millpond.model.resources import Amount
from millpond.model.workloads import TaskState
from millpond.scheduling.holdings import Hold
from millpond.scheduling.lifecycle import Trigger
from millpond.scheduling.records import JobRecord, TaskRecord
from millpond.scheduling.state import State


def suspend(state: State, record: JobRecord, mode: SuspendMode, cause: Cause, for_job: str = "") -> None:
    """Decide that a running job leaves its devices. They are free for others once the engine has confirmed it."""
    trigger = Trigger.FREEZE_DECIDED if mode is SuspendMode.FREEZE else Trigger.SWAP_DECIDED
    for task in record.tasks:
        if task.state is TaskState.RUNNING and task.holding is not None:
            task.move(trigger)
    if record.started_at is not None:
        elapsed = state.now - record.started_at
        record.attained_s = record.service_s(state.now)
        record.debt_s = max(record.debt_s - elapsed, 0.0)
        record.started_at = None
    record.refresh()
    record.suspended_at = state.now
    state.suspended[record.id] = record
    state.roster.remove(record)
    _supersede(state, record)
    state.emit(Suspend(state.next_id(), record.id, record.attempt, cause, mode, for_job))


def suspended_now(state: State, record: JobRecord, mode: SuspendMode) -> None:
    """The engine has confirmed that a job left its devices: the ledger follows."""
    hold = Hold.FROZEN if mode is SuspendMode.FREEZE else Hold.SWAPPED
    tasks = suspended_tasks(record)
    state.count(record, state.held_by(record, tasks), -1)
    for task in tasks:
        if task.holding is not None:
            state.cluster.change(task.holding, hold)
    state.count(record, state.held_by(record, tasks), 1)


def suspend_refused(state: State, record: JobRecord, reason: str) -> None:
    """It could not leave its devices: it runs on, unless it has been resumed or stopped since."""
    if record.id not in state.suspended:
        return
    for task in record.tasks:
        if task.state in (TaskState.FROZEN, TaskState.SWAPPED):
            task.move(Trigger.RESUME_DECIDED)
            task.detail = reason
    state.suspended.pop(record.id, None)
    record.suspended_by = ""
    record.started_at = state.now
    record.refresh()
    state.watch_deadline(record)
    state.enroll(record)


def can_swap(state: State, record: JobRecord) -> bool:
    """Whether the host memory set aside takes the job's device memory, beside that of others on their way there."""
    leaving = [
        state.jobs[decision.job]
        for decision in state.pending.values()
        if type(decision) is Suspend and decision.mode is SuspendMode.SWAP and decision.job in state.suspended
    ]
    holdings = [task.holding for job in (record, *leaving) for task in job.tasks if task.holding is not None]
    return state.cluster.can_swap(holdings)


def is_suspending(state: State, record: JobRecord) -> bool:
    """Whether the job was told to leave its devices and has not confirmed that it did."""
    return any(
        type(decision) is Suspend and decision.job == record.id and decision.attempt == record.attempt
        for decision in state.pending.values()
    )


def is_suspending_for(state: State, job_id: str) -> bool:
    """Whether some work was told to leave its devices for this job and has not confirmed that it did."""
    return any(
        type(decision) is Suspend and decision.for_job == job_id and decision.job in state.suspended
        for decision in state.pending.values()
    )


def given_up(state: State, record: JobRecord) -> Amount:
    """What a suspended job no longer counts for, and needs again to go on."""
    tasks = suspended_tasks(record)
    held, asked = state.held_by(record, tasks), state.amount_of(record, tasks)
    return Amount(
        asked.gpu_milli - held.gpu_milli, asked.cpu_milli - held.cpu_milli, asked.memory_mib - held.memory_mib
    )


def resume(state: State, record: JobRecord, cause: Cause) -> bool:
    """Decide that a suspended job goes on where it was; False, and nothing changed, if it cannot yet.

    Its devices have to be free again, and its queue has to admit what it gave up when it was suspended.
    """
    tasks = suspended_tasks(record)
    mark = state.journal.begin()
    needed = given_up(state, record)
    if not state.admits(record, needed) or not _retake(state, tasks):
        state.journal.rollback(mark)
        return False
    state.journal.commit()
    state.count(record, needed, 1)
    for task in tasks:
        task.move(Trigger.RESUME_DECIDED)
    record.suspended_by = ""
    record.started_at = state.now
    record.refresh()
    del state.suspended[record.id]
    state.watch_deadline(record)
    state.enroll(record)
    _supersede(state, record)
    state.emit(Resume(state.next_id(), record.id, record.attempt, cause))
    return True


def _supersede(state: State, record: JobRecord) -> None:
    """What the engine still has to say to an earlier order to leave, or to go on, no longer counts."""
    for decision in list(state.pending.values()):
        if isinstance(decision, (Suspend, Resume)) and decision.job == record.id:
            del state.pending[decision.id]


def _retake(state: State, tasks: Sequence[TaskRecord]) -> bool:
    """Let suspended tasks hold again what they held, in the open transaction; False if that is too much."""
    for task in tasks:
        if task.holding is not None:
            state.cluster.change(task.holding, Hold.RUNNING)
            if state.cluster.is_overdrawn(task.holding):
                return False
    return True


def suspended_tasks(record: JobRecord) -> list[TaskRecord]:
    """The tasks of a job that were told to leave their devices and to wait."""
    return [task for task in record.tasks if task.state in (TaskState.FROZEN, TaskState.SWAPPED)]
