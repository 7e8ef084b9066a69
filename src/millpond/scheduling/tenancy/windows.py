"""Hours that come and go: the windows of jobs, and the hours in which pools lend.

A job with windows stands in no line while they are closed. At their end it leaves its devices: its device memory moves
to host memory if its pool suspends and it can be swapped; it is frozen if that keeps no card from others or is all that
it allows; else it is ended, with notice and grace, and lines up again when they open. So is a gang of which a
minimum stays, if a reservation needs the rest, which it would keep while it is suspended. The job asked for that, so
no promise stands against it.

While a pool does not lend, no job starts or goes on there beyond the guarantee of its queue
(``Entitlements.admits``). When its hours end, elastic gangs give up borrowed tasks beyond their minimum, and then the
youngest borrowed work leaves in the same way, but for what is not preemptible. Neither is a failure or a preemption.
Before that, nothing comes in that would borrow, is known to run into it, and can neither save its work on notice nor be
swapped off its devices.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from millpond.model import windows
from millpond.model.decisions import SuspendMode
from millpond.model.reasons import Cause
from millpond.model.states import JobState, TaskState
from millpond.model.workloads import Suspendable
from millpond.scheduling import runs
from millpond.scheduling.elastic.gang_sizes import spare_tasks
from millpond.scheduling.lifecycle import Trigger
from millpond.scheduling.nodes.cordon import stays_until
from millpond.scheduling.ordering.queueing import enqueue, is_in_window, watch_window
from millpond.scheduling.records import BY_REQUEST, JobRecord, TaskRecord
from millpond.scheduling.reserving.upkeep import began_at, needs_rest_of
from millpond.scheduling.state import State
from millpond.scheduling.suspension.suspension import (
    BY_LENDING,
    BY_REST,
    BY_WINDOW,
    leaves_by,
    may_vacate,
    suspend,
)

Leave = Callable[[State, JobRecord, Cause], None]
"""How running work leaves its devices whose hours are over: ``leave``, or nothing where that is decided already."""


def follow_hours(state: State, leave: Leave) -> None:
    """Let in and send out whose hours begin and end by now."""
    while state.window_changes and state.window_changes[0][0] <= state.now:
        _, _, record = heapq.heappop(state.window_changes)
        if not record.state.ended:
            _turn(state, record, leave)
            watch_window(state, record)
    if state.cluster.lends_by_hours or state.entitlements.unlent:
        _follow_lending(state, leave)


def next_change(state: State, now: float) -> float | None:
    """When hours begin or end next; None when none do."""
    if not state.window_changes and not state.cluster.lends_by_hours:
        return None
    while state.window_changes and state.window_changes[0][2].state.ended:
        heapq.heappop(state.window_changes)
    has_work = state.cluster.lends_by_hours and (state.running or state.waiting.count)
    pools = state.cluster.pools.values() if has_work else ()
    changes = [windows.next_change(pool.lending, now) for pool in pools if pool.lending]
    known = [change for change in changes if change is not None]
    return min([*known, *(at for at, _, _ in state.window_changes[:1])], default=None)


# ---- the windows of jobs ------------------------------------------------------------------------------------------


def _turn(state: State, record: JobRecord, leave: Leave) -> None:
    """The windows of a job opened or closed, or would have if they had not been changed."""
    if is_in_window(state, record):
        if record.suspended_by == BY_WINDOW:
            record.suspended_by, record.ready_at = "", state.now
        elif record.state is JobState.QUEUED and not record.line and not record.scaled_to_zero:
            enqueue(state, record)
    elif record.line:
        state.waiting.remove(record)
        record.line = ()
    elif record.id in state.suspended:
        if record.suspended_by not in (BY_REQUEST, BY_REST):
            record.suspended_by, record.suspended_why = BY_WINDOW, Cause.WINDOW_CLOSED
    elif record.id in state.running and not record.is_ending:
        leave(state, record, Cause.WINDOW_CLOSED)


def leave(state: State, record: JobRecord, cause: Cause) -> None:
    """Running work leaves its devices, without ending if that is possible."""
    modes = () if needs_rest_of(state, record) else leaves_by(state, record)
    if SuspendMode.SWAP in modes and record.gpu_milli and may_vacate(state, record):
        suspend(state, record, SuspendMode.SWAP, cause)
    elif (
        modes
        and cause is Cause.WINDOW_CLOSED
        and (not record.gpu_milli or record.job.suspendable is Suspendable.FREEZE)
    ):  # frozen work still counts as borrowing its card
        suspend(state, record, SuspendMode.FREEZE, cause)
    else:
        runs.stop(state, record, Trigger.ENDED_FOR_RETRY, cause)


# ---- the hours in which pools lend --------------------------------------------------------------------------------


def lending_ends(state: State) -> dict[str, float]:
    """When each of the pools that lend by the hour, and do so now, lends no longer."""
    if not state.cluster.lends_by_hours:
        return {}
    pools = state.cluster.pools.items()
    open_ones = ((name, pool.lending) for name, pool in pools if pool.lending and name not in state.entitlements.unlent)
    ends = ((name, windows.closes_at(hours, state.now)) for name, hours in open_ones)
    return {name: end for name, end in ends if end is not None}


def outlasts_lending(state: State, record: JobRecord, end: float) -> bool:
    """Whether a waiting job would borrow, and could not give that back at the end of the hours but by losing its work.

    The rule is that of planned cordons (``nodes.cordon.stays_until``), but for what can be swapped.
    """
    job, least = record.job, record.demand.least_amount
    if not least.gpu_milli or not state.entitlements.borrows(record, least):
        return False
    if state.cluster.pools[job.pool].suspends and job.may_swap and not record.suspend_refused:
        return False
    return stays_until(record, state.ordering.time_left, state.now) > end


def _follow_lending(state: State, leave: Leave) -> None:
    shut = {
        name
        for name, pool in state.cluster.pools.items()
        if pool.lending and not windows.is_open(pool.lending, state.now)
    }
    if shut == state.entitlements.unlent:
        return
    closing, opening = sorted(shut - state.entitlements.unlent), state.entitlements.unlent - shut
    state.entitlements.unlent = shut
    for record in state.suspended.values():
        if record.suspended_by == BY_LENDING and record.job.pool in opening:
            record.suspended_by, record.ready_at = "", state.now
    if opening:
        state.cluster.releases += 1
    for pool in closing:
        spared, whole = _borrowed(state, pool)
        for record, tasks in spared:
            runs.stop(state, record, Trigger.ENDED_FOR_RETRY, Cause.SHRUNK, tasks=tasks)
        for record in whole:
            leave(state, record, Cause.LENDING_OVER)


def leave_unlent(state: State, record: JobRecord) -> None:
    """Have a gang that grew as the hours ended give up what it borrows beyond a minimum that stays, once that runs."""
    is_lent = record.job.pool not in state.entitlements.unlent
    if record.job.rest_preemptible and not is_lent and not state.reserved.has_user(record):
        mark = state.journal.begin()
        _charge_reserved(state, record.job.pool)
        tasks = _spared(state, record)
        state.journal.rollback(mark)
        if tasks:
            runs.stop(state, record, Trigger.ENDED_FOR_RETRY, Cause.SHRUNK, tasks=tasks)


def _borrowed(state: State, pool: str) -> tuple[list[tuple[JobRecord, list[TaskRecord]]], list[JobRecord]]:
    """The youngest work on a pool that has to leave so that no queue there has more than is guaranteed.

    What is reserved stays, and comes first of what its queue is guaranteed. Others leave: tasks that elastic gangs can
    spare, the last of them first; then whole jobs, which may be of those gangs too.
    """
    candidates = [
        record
        for record in state.running.values()
        if record.job.pool == pool
        and record.gpu_milli
        and not record.is_ending
        and record.id not in state.suspended
        and not state.reserved.has_user(record)
    ]
    candidates.sort(key=lambda each: (-began_at(state, each), -each.sequence))
    mark = state.journal.begin()
    _charge_reserved(state, pool)
    spared = {record.id: _spared(state, record) for record in candidates if record.elastic}
    whole = []
    for record in candidates:
        if record.job.preemptible and not state.queues.covers_all(record.queue):
            gone = spared.pop(record.id, [])
            left = [task for task in record.tasks if task.holding is not None and task not in gone]
            state.queues.charge(record.queue, state.amounts.held(record, left), -1)
            whole.append(record)
    state.journal.rollback(mark)
    return [(state.jobs[job], tasks) for job, tasks in spared.items() if tasks], whole


def _charge_reserved(state: State, pool: str) -> None:
    """Count reserved cards that nobody has taken for their queues, and those reserved beyond a guarantee for none."""
    for room in state.reserved.by_name.values():
        wanted = room.wanted
        if wanted.pool != pool or not wanted.covers(state.now):
            continue
        if not wanted.beyond_guarantee:
            state.queues.charge(wanted.queue, state.unused_of(room), 1)
            continue
        for record in state.running.values():
            if room.has_user(record):
                state.queues.charge(record.queue, state.amounts.held(record, record.holding_tasks()), -1)


def _spared(state: State, record: JobRecord) -> list[TaskRecord]:
    """The tasks that a gang gives up, and no longer counts for, until its queue is within its guarantee."""
    job, found = record.job, list[TaskRecord]()
    if record.state is not JobState.RUNNING or not (job.preemptible or job.rest_preemptible):
        return found
    for task in reversed(spare_tasks(job, [task for task in record.tasks if task.state is TaskState.RUNNING])):
        if state.queues.covers_all(record.queue):
            break
        state.queues.charge(record.queue, state.amounts.held(record, [task]), -1)
        found.append(task)
    return found
