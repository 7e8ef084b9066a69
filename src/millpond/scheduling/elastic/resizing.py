"""A role gets another number of tasks, whether its job waits or runs; a service may do without any for a while."""

from __future__ import annotations

from dataclasses import replace

from millpond.model.decisions import SuspendMode
from millpond.model.errors import InvalidInputError, NotFoundError
from millpond.model.reasons import Cause
from millpond.model.states import TaskState
from millpond.model.workloads import Kind
from millpond.scheduling import runs
from millpond.scheduling.lifecycle import Trigger
from millpond.scheduling.ordering.queueing import enqueue, restart_wait
from millpond.scheduling.records import JobRecord, TaskRecord
from millpond.scheduling.reserving.upkeep import needs_rest_of
from millpond.scheduling.state import ACTIVE, State
from millpond.scheduling.suspension.suspension import BY_REST, leaves_by, may_vacate, suspend


def resize(state: State, record: JobRecord, role_name: str, desired: int) -> None:
    """Give a role another number of tasks: surplus tasks of a running job end, missing ones wait to join it.

    Raises:
        NotFoundError: the job has no such role.
        InvalidInputError: the number lies outside the role's bounds.
    """
    job = record.job
    index = next((i for i, role in enumerate(job.roles) if role.name == role_name), None)
    if index is None:
        raise NotFoundError(f"job {job.id!r} has no role {role_name!r}")
    role = replace(job.roles[index], desired=desired)
    waits = record.id not in state.running
    lined_up = bool(record.line)
    wakes = bool(record.scaled_to_zero)
    record.scaled_to_zero = ""
    if lined_up:
        state.waiting.remove(record)
        record.line = ()
    record.job = replace(job, roles=(*job.roles[:index], role, *job.roles[index + 1 :]))
    record.demand = state.demands.of(record.job)
    record.gpu_milli = record.demand.gpu_milli
    mine = [task for task in record.wanted() if task.role_index == index]
    surplus = sorted(mine, key=_first_to_go)[: max(len(mine) - desired, 0)]
    for task in surplus:
        task.surplus = True
        if task.state is TaskState.QUEUED:
            task.move(Trigger.CANCELLED_WAITING)
    leaving = [task for task in mine if task.surplus and task.state in ACTIVE]
    for _ in range(desired - len(mine)):
        record.tasks.append(TaskRecord(len(record.tasks), role.name, index))
    record.count_tasks()
    if record.suspended_by == BY_REST:
        record.suspended_by, record.ready_at = "", state.now
    if waits:
        if wakes:
            restart_wait(state, record)
        if lined_up or wakes:
            enqueue(state, record)
        return
    if leaving:
        runs.stop(state, record, Trigger.ENDED_CANCELLED, Cause.SHRUNK, tasks=leaving)
    state.watch_growth(record)
    record.refresh()
    if record.slot >= 0:
        state.enroll(record)


def rest(state: State, record: JobRecord, role_name: str, why: str, *, swap: bool = False) -> None:
    """A service needs no tasks for now: its run ends, and it stands in no line until it is given a number of tasks.

    Args:
        swap: it leaves its devices and keeps its processes instead, if it can.

    Raises:
        NotFoundError: the job has no such role.
        InvalidInputError: it is no service, or has several roles.
    """
    job = record.job
    if all(role.name != role_name for role in job.roles):
        raise NotFoundError(f"job {job.id!r} has no role {role_name!r}")
    if job.kind is not Kind.SERVICE or len(job.roles) > 1:
        raise InvalidInputError(f"job {job.id!r} cannot go without tasks", "only a service without roles can")
    if record.scaled_to_zero:
        return
    record.scaled_to_zero = why or "no tasks are wanted"
    if (
        swap
        and record.id in state.running
        and SuspendMode.SWAP in leaves_by(state, record)
        and may_vacate(state, record)
        and not needs_rest_of(state, record)
    ):
        suspend(state, record, SuspendMode.SWAP, Cause.SCALED_TO_ZERO)
    elif record.id in state.running:
        runs.stop(state, record, Trigger.ENDED_FOR_RETRY, Cause.SCALED_TO_ZERO)
    elif record.line:
        state.waiting.remove(record)
        record.line = ()


def _first_to_go(task: TaskRecord) -> tuple[bool, int]:
    """Order in which a role that is made smaller gives its tasks up: those that wait, then the last ones."""
    return task.state is not TaskState.QUEUED, -task.number
