"""Work leaves its devices without ending, and goes on later where it was.

Suspending takes two steps: it is decided, and the devices are free for others once the engine has confirmed it. Going
on takes one, but needs the same devices and the leave of the job's queue. Work that left for others does not wait for
that for ever: after a while it is ended, and lines up for another run.
"""

from __future__ import annotations

from collections.abc import Sequence

from millpond.model.decisions import Placement, Resume, Suspend, SuspendMode
from millpond.model.reasons import Cause
from millpond.model.resources import Amount
from millpond.model.states import TaskState
from millpond.scheduling import runs
from millpond.scheduling.ledger.holdings import Holding, HoldState
from millpond.scheduling.lifecycle import Trigger
from millpond.scheduling.ordering.forecasts import NEVER
from millpond.scheduling.ordering.queueing import is_in_window
from millpond.scheduling.packing.pairs import end_pair
from millpond.scheduling.records import BY_REQUEST, JobRecord, TaskRecord
from millpond.scheduling.reserving.counted_reservations import admits_beside_reserved
from millpond.scheduling.state import State
from millpond.scheduling.suspension.host_memory import short_of_host_memory

HOLD_OF = {SuspendMode.FREEZE: HoldState.FROZEN, SuspendMode.SWAP: HoldState.SWAPPED}
"""What suspended work still holds, by how it left."""

BY_REST, BY_TURN, BY_WINDOW, BY_LENDING = "rest", "turn", "window", "lending"
"""``JobRecord.suspended_by`` of services that are not needed for now, of work that waits for its turn, whose window is
closed, or that was borrowed of a pool that does not lend now."""

_KEPT_BY = {
    Cause.SUSPEND_REQUESTED: BY_REQUEST,
    Cause.SCALED_TO_ZERO: BY_REST,
    Cause.TURN_TAKEN: BY_TURN,
    Cause.WINDOW_CLOSED: BY_WINDOW,
    Cause.LENDING_OVER: BY_LENDING,
}
"""What keeps work suspended that was suspended for this; else it may go on when there is room."""

FOR_OTHERS = frozenset({Cause.RECLAIMED, Cause.PREEMPTED, Cause.LENDING_OVER, Cause.WINDOW_CLOSED})
"""Why work leaves for others, or for its own hours: it goes on by itself, and if it cannot leave so it is ended."""


_RUNNING, _FROZEN, _SWAP = TaskState.RUNNING, TaskState.FROZEN, SuspendMode.SWAP
_WAYS = {
    (True, True): (SuspendMode.FREEZE, SuspendMode.SWAP),
    (True, False): (SuspendMode.FREEZE,),
    (False, True): (SuspendMode.SWAP,),
    (False, False): (),
}
"""By whether it is known what fits beside it, and whether its device memory may be moved."""


def leaves_by(state: State, record: JobRecord) -> tuple[SuspendMode, ...]:
    """How running work may leave its devices for others without ending, the less disruptive way first.

    All its tasks have to run, and its engine must not have refused before. On a device of unknown memory it is
    unknown what fits beside frozen work.
    """
    pool, job = state.cluster.pools.get(record.job.pool), record.job
    if pool is None or not pool.suspends or record.suspend_refused or not job.may_freeze or record.kept is not None:
        return ()
    capacity, is_known = state.cluster.arrays.device_memory_cells, True
    for task in record.wanted():
        if task.state is not _RUNNING or task.holding is None:
            return ()
        is_known = is_known and all(map(capacity.__getitem__, task.holding.devices))
    return _WAYS[is_known, job.may_swap]


def suspend(state: State, record: JobRecord, mode: SuspendMode, cause: Cause, for_job: str = "") -> None:
    """Decide that a running job leaves its devices, or a frozen one with its memory, too.

    They are free for others once the engine has confirmed it.
    """
    trigger = Trigger.SWAP_DECIDED if mode is _SWAP else Trigger.FREEZE_DECIDED
    for task in record.tasks:
        if (task.state is _RUNNING or task.state is _FROZEN) and task.holding is not None:
            task.move(trigger)
        if task.vacating is not None and task.vacating.hold is HoldState.NOTHING:
            task.vacating = None  # it had just come back elsewhere, and leaves from there
    if record.started_at is not None:
        elapsed = state.now - record.started_at
        record.attained_s = record.service_s(state.now)
        record.debt_s = max(record.debt_s - elapsed, 0.0)
        record.started_at = None
    record.refresh()
    record.note_left(state.now, state.now)
    record.suspended_at = record.ready_at = state.now
    record.suspended_by = _KEPT_BY.get(cause, "")
    record.suspended_why, record.suspend_mode = cause, mode
    state.suspended[record.id] = record
    state.roster.remove(record)
    end_pair(state, record)
    _supersede(state, record)
    state.emit(Suspend(state.next_id(), record.id, record.attempt, cause, mode, for_job))


def suspended_now(state: State, record: JobRecord, mode: SuspendMode) -> None:
    """The engine has confirmed that a job left its devices: the ledger follows."""
    hold = HOLD_OF[mode]
    tasks = suspended_tasks(record)
    record.leave_s = state.now - record.suspended_at
    state.count(record, state.amounts.held(record, tasks), -1)
    for task in tasks:
        if task.holding is not None:
            state.cluster.change(task.holding, hold)
    state.count(record, state.amounts.held(record, tasks), 1)


def suspend_refused(state: State, refused: Suspend, reason: str) -> None:
    """It could not leave its devices: it runs on, and is ended if others need them still.

    It is not asked again to leave without ending in this run.
    """
    record = state.jobs[refused.job]
    if any(task.holding is not None and task.holding.hold is HoldState.FROZEN for task in record.tasks):
        _stays_frozen(record, reason)
        return
    for task in record.tasks:
        if task.state in (TaskState.FROZEN, TaskState.SWAPPED):
            task.move(Trigger.RESUME_DECIDED)
            task.detail = reason
    state.suspended.pop(record.id, None)
    record.suspended_by = ""
    record.suspend_refused = True
    record.note_left(None, state.now)
    record.started_at = state.now
    record.refresh()
    state.watch_deadline(record)
    state.enroll(record)
    if _is_still_due(state, record, refused):
        runs.stop(state, record, Trigger.ENDED_FOR_RETRY, refused.cause, for_job=refused.for_job)


def _stays_frozen(record: JobRecord, reason: str) -> None:
    """A frozen job could not be swapped: it is where it was."""
    for task in suspended_tasks(record):
        task.move(Trigger.FREEZE_DECIDED)
        task.detail = reason
    record.suspend_mode, record.suspend_refused = SuspendMode.FREEZE, True
    record.refresh()


def _is_still_due(state: State, record: JobRecord, refused: Suspend) -> bool:
    """Whether what work should have left its devices for still wants them, or its hours are still over."""
    match refused.cause:
        case Cause.PREEMPTED | Cause.RECLAIMED:
            successor = state.jobs.get(refused.for_job)
            return successor is not None and (bool(successor.line) or wants_back(state, successor))
        case Cause.WINDOW_CLOSED:
            return not is_in_window(state, record)
        case Cause.LENDING_OVER:
            return record.job.pool in state.entitlements.unlent
        case Cause.SCALED_TO_ZERO:
            return bool(record.scaled_to_zero)
        case _:
            return False


def wants_back(state: State, record: JobRecord) -> bool:
    """Whether a job is suspended and would go on if there were room."""
    return record.id in state.suspended and not record.suspended_by


def can_swap(state: State, record: JobRecord) -> bool:
    """Whether the host memory of its nodes takes the job's device memory, beside that of others on their way there."""
    own = [task.holding for task in record.tasks if task.holding is not None]
    if not state.pending.move_memory:
        return state.cluster.has_swap_space(own)
    nodes = {holding.node for holding in own}
    moving = (each for node in nodes for each in state.pending.moving_memory(state.cluster.node_name(node)))
    leaving = {
        each.job for each in moving if each.job in (state.suspended if type(each) is Suspend else state.running)
    } - {record.id}
    others = [task.holding for job in leaving for task in state.jobs[job].tasks if task.holding is not None]
    return state.cluster.has_swap_space([*own, *(holding for holding in others if holding.node in nodes)])


def may_vacate(state: State, record: JobRecord) -> bool:
    """Whether the job may be swapped off its devices for no particular job."""
    return not why_not_vacated(state, record)


def why_not_vacated(state: State, record: JobRecord) -> str:
    """Why the job may not be swapped off its devices for no particular job; empty when it may."""
    holdings = [task.holding for task in record.tasks if task.holding is not None]
    if not can_swap(state, record):
        return short_of_host_memory(state.cluster, holdings)
    if not state.cluster.swapped.leave_room(holdings):
        return f"pool {record.job.pool!r} lets no more device memory be swapped off its cards (memory_overcommit)"
    return ""


def is_suspending(state: State, record: JobRecord) -> bool:
    """Whether the job was asked to leave its devices and has not confirmed that it did."""
    return any(
        type(decision) is Suspend and decision.attempt == record.attempt for decision in state.pending.of(record.id)
    )


def is_leaving(record: JobRecord) -> bool:
    """Whether a suspended job still holds what it held before, as its engine has not said that it left."""
    hold = HOLD_OF[record.suspend_mode]
    return any(task.holding is not None and task.holding.hold is not hold for task in suspended_tasks(record))


def why_suspend_refused(record: JobRecord) -> str:
    """Why its engine could not take a running job off its devices, as text; empty where it was not asked to."""
    if not record.suspend_refused:
        return ""
    why = next((task.detail for task in record.tasks if task.detail), "its engine does not say why")
    return f"could not leave its cards: {why}"


def suspending_for(state: State, job_id: str) -> list[JobRecord]:
    """The work that was asked to leave its devices for this job and has not confirmed that it did."""
    pending = state.pending.suspensions_for(job_id)
    return [state.suspended[decision.job] for decision in pending if decision.job in state.suspended]


def given_up(state: State, record: JobRecord) -> Amount:
    """What a suspended job no longer counts for, and needs again to go on."""
    tasks = suspended_tasks(record)
    return state.amounts.asked(record, tasks) - state.amounts.held(record, tasks)


def gives_up_at(state: State, record: JobRecord) -> float | None:
    """When suspended work is ended because it found no room again; None while it may wait for ever."""
    pool = state.cluster.pools.get(record.job.pool)
    if pool is None or not pool.suspends or record.suspended_by or record.suspended_why not in FOR_OTHERS:
        return None
    return record.ready_at + pool.longest_suspended_s


def next_end(state: State) -> float | None:
    """The first instant at which suspended work is ended because it found no room again; None if none will be."""
    soonest = NEVER
    for record in state.suspended.values():
        end_at = gives_up_at(state, record)
        if end_at is not None and end_at < soonest and not is_suspending(state, record):
            soonest = end_at
    return None if soonest == NEVER else soonest


def end_overlong(state: State) -> None:
    """End suspended work that has waited for room for too long; it lines up for another run."""
    for record in list(state.suspended.values()):
        end_at = gives_up_at(state, record)
        if end_at is not None and end_at <= state.now and not is_suspending(state, record):
            runs.stop(state, record, Trigger.ENDED_FOR_RETRY, Cause.SUSPENDED_TOO_LONG)


def resume(state: State, record: JobRecord, cause: Cause) -> bool:
    """Decide that a suspended job goes on where it was; False, and nothing changed, if it cannot yet.

    Its devices have to be free again, and its queue has to admit what it gave up when it was suspended.
    """
    tasks = suspended_tasks(record)
    if any(_lacks_compute(state, task.holding) for task in tasks):
        return False
    mark = state.journal.begin()
    needed = given_up(state, record)
    if not admits_beside_reserved(state, record, needed) or not _retake(state, record, tasks):
        state.journal.rollback(mark)
        return False
    state.journal.commit()
    goes_on(state, record, needed, cause)
    return True


def goes_on(state: State, record: JobRecord, needed: Amount, cause: Cause) -> None:
    """Decide that a suspended job goes on with what its tasks hold again.

    Args:
        needed: what it did not count for while it was suspended.
    """
    tasks = suspended_tasks(record)
    state.count(record, needed, 1)
    for task in tasks:
        task.move(Trigger.RESUME_DECIDED)
    record.suspended_by = ""
    record.note_left(None, state.now)
    record.started_at = state.now
    record.refresh()
    del state.suspended[record.id]
    state.watch_deadline(record)
    state.enroll(record)
    _supersede(state, record)
    record.placed_by = state.next_id()
    state.emit(Resume(record.placed_by, record.id, record.attempt, cause, _destination(state, record)))


def give_back(state: State, record: JobRecord, task: TaskRecord, old: Holding) -> None:
    """A task that was to go on elsewhere lies in host memory still: its job waits again, for what it held before."""
    place = task.holding
    if place is None:
        return
    state.count(record, state.amounts.held(record, (task,)), -1)
    state.cluster.change(place, HoldState.NOTHING)
    state.cluster.change(old, HoldState.SWAPPED)
    task.vacating = None
    runs.take_place(state, record, task, old)
    state.count(record, state.amounts.held(record, (task,)), 1)
    task.move(Trigger.SWAP_DECIDED)
    record.left_at = record.started_at  # it has not been at work since
    record.note_left(state.now, state.now)
    record.started_at = None
    record.refresh()
    record.suspended_at = record.ready_at = state.now
    record.suspended_by = BY_TURN if record.suspended_why is Cause.TURN_TAKEN else ""
    state.suspended[record.id] = record
    state.roster.remove(record)


def _destination(state: State, record: JobRecord) -> Placement | None:
    """Where a job goes on, if it could be elsewhere than it was."""
    task = record.tasks[0]
    if len(record.tasks) > 1 or task.holding is None:
        return None
    found = [state.cluster.device(device) for device in task.holding.devices]
    return task.placement if any(pair is not None and pair[1].remaps for pair in found) else None


def can_retake(state: State, record: JobRecord) -> bool:
    """Let a suspended job hold again what it held, in the open transaction; False if its queue or devices forbid it."""
    admitted = admits_beside_reserved(state, record, given_up(state, record))
    return admitted and _retake(state, record, suspended_tasks(record))


def _supersede(state: State, record: JobRecord) -> None:
    """What the engine still has to say to an earlier order to leave, or to go on, no longer counts."""
    for decision in state.pending.of(record.id):
        if isinstance(decision, (Suspend, Resume)):
            state.pending.pop(decision.id)


def _lacks_compute(state: State, holding: Holding | None) -> bool:
    """Whether compute that a suspended task gave up is not free: a quick first look, before anything is tried."""
    return holding is not None and holding.hold is not HoldState.RUNNING and state.cluster.lacks_compute(holding)


def _retake(state: State, record: JobRecord, tasks: Sequence[TaskRecord]) -> bool:
    """Let suspended tasks hold again what they held, in the open transaction; False if that is too much."""
    state.cluster.cells.forget(record, [task.holding for task in tasks if task.holding is not None])
    for task in tasks:
        if task.holding is not None:
            state.cluster.change(task.holding, HoldState.RUNNING)
            if state.cluster.is_overdrawn(task.holding):
                return False
    return state.settle(record, [task.holding for task in tasks if task.holding is not None])


def suspended_tasks(record: JobRecord) -> list[TaskRecord]:
    """The tasks of a job that are frozen or swapped."""
    return [task for task in record.tasks if task.state in (TaskState.FROZEN, TaskState.SWAPPED)]
