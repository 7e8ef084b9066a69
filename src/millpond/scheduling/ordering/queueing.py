"""Jobs line up: which of them stand in a waiting line, by which key, and when that is looked at again.

A job joins a line when it is submitted, when a pause or a suspension is over, and when a window opens. It leaves its
line when it starts (``scheduling.runs``).
"""

from __future__ import annotations

import heapq

from millpond.model import windows
from millpond.model.resources import CARD_MILLI
from millpond.model.states import JobState
from millpond.model.workloads import Job
from millpond.scheduling.ordering.backlog import SMALL_LEAD, SMALL_WORK_S
from millpond.scheduling.ordering.base import Key, cards
from millpond.scheduling.ordering.forecasts import NEVER
from millpond.scheduling.ordering.survival import size_class
from millpond.scheduling.records import Group, JobRecord
from millpond.scheduling.state import State

FIRST_LOOK_S = 300.0
"""How long a job waits before it is first looked at whether it is overdue, and at least from one look to the next."""

OVERDUE_LEAD = 1e12
"""The keys of overdue jobs are below zero, by this less the instant of submission: all others are not."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 300.0
MOST_DOUBLINGS = 10
"""More than lead to the longest pause; a job may be refused thousands of times."""
"""A job whose start was refused waits so long before the next try; each refusal in a row doubles it."""


def submit(state: State, job: Job) -> JobRecord:
    """Enter a new job and put it into its waiting line.

    Raises:
        InvalidInputError: it names more kinds of extra resources than the ledger has room to count.
    """
    state.journal.require_no_trial()
    record = new_record(state, job, state.next_sequence, state.now)
    state.cluster.words.shapes_of(record.demand)
    state.next_sequence += 1
    state.jobs[job.id] = record
    state.protects = state.protects or job.minimum_run_s > 0
    state.ordering.submitted(record, state.now)
    state.arrivals.add(record)
    if job.flexible_s and state.held.predicted.values:
        state.held.hold(record, state.now + job.flexible_s)
    enqueue(state, record)
    if job.windows or job.reservation or record.held_until:
        watch_window(state, record)
    return record


def new_record(state: State, job: Job, sequence: int, submitted_at: float) -> JobRecord:
    """A record of a job that nothing has happened to yet."""
    record = JobRecord(job, state.demands.of(job), sequence, submitted_at)
    record.idled_before = state.idle_time.of(job.pool, submitted_at)
    record.size_class = size_class(record.gpu_milli)
    return record


def enqueue(state: State, record: JobRecord) -> None:
    """Put a job whose tasks are queued into its line, with its key as of now.

    A job outside its windows joins none, nor does one that is held back, whose reservation has not begun, or that lost
    its run while users kept it suspended.
    """
    state.journal.require_no_trial()
    if record.is_parked or not is_in_window(state, record):
        return
    if record.held_until:
        state.held.release(record)
    take_place(state, record)
    left_s = 0.0 if record.overdue else state.ordering.time_left.needed_s(record, state.now)[0]
    record.work = int(CARD_MILLI * cards(record) * left_s)
    state.waiting.add(record)
    record.rekey_at = record.look_at = 0.0
    state.fresh.append(record)


def restart_wait(state: State, record: JobRecord) -> None:
    """The wait of a job counts from now on."""
    record.requeued_at, record.idled_before = state.now, state.idle_time.of(record.job.pool, state.now)


def take_place(state: State, record: JobRecord) -> None:
    """Give a job its place in the order, before it joins a line."""
    record.group = group_of(state, record)
    record.key, record.turn, record.displaces_above, _ = line_up(state, record)


def group_of(state: State, record: JobRecord) -> Group | None:
    """The group of a job by the settings of now, see ``ordering.turns``."""
    return state.orderings.group_of(record, state.queues.by_name[record.queue])


def line_up(state: State, record: JobRecord) -> tuple[Key, float, float, float]:
    """How a job waits from now on: its key, its turn, what it displaces, and until when that holds.

    As ``Ordering.line_up`` of the cluster, and by that of its own group. An overdue one may go first, and it displaces
    more if it is small beside its pool.
    """
    key, displaces_above, due = state.ordering.line_up(record, state.now)
    own = state.orderings.of(record.group)
    is_promoted = record.overdue and own.promotes
    if is_promoted and state.ordering.displaces and is_small(state, record):
        displaces_above *= SMALL_LEAD
    first_key = (record.submitted_at - OVERDUE_LEAD,)
    if record.group is None:
        key = first_key if is_promoted else key
        return key, key[0], displaces_above, due
    own_key, _, own_due = own.line_up(record, state.now)
    return first_key if is_promoted else own_key, key[0], displaces_above, min(due, own_due)


def is_small(state: State, record: JobRecord) -> bool:
    """Whether what a job still needs is small beside its pool, see ``backlog.SMALL_WORK_S``."""
    left_s, _ = state.ordering.time_left.needed_s(record, state.now)
    return CARD_MILLI * cards(record) * left_s <= SMALL_WORK_S * capacity_of_pool(state, record)


def capacity_of_pool(state: State, record: JobRecord) -> int:
    """The compute of all cards of a job's pool, in milli; of one card at least."""
    return max(state.cluster.capacity.gpu_milli_of(record.job.pool), CARD_MILLI)


def is_in_window(state: State, record: JobRecord) -> bool:
    """Whether a job may stand in a line by the clock.

    A window of it is open, it is not held back for cheaper hours, and its reservation has begun, or is over.
    """
    job = record.job
    if record.held_until > state.now:
        return False
    room = state.reserved.required_by(job)
    if room is not None and room.wanted.begin > state.now:
        return False
    return not job.windows or windows.is_open(job.windows, state.now)


def watch_window(state: State, record: JobRecord) -> None:
    """Remember when the windows of a job open or close next, its reservation begins, or it is held back no longer."""
    job = record.job
    changes = [windows.next_change(job.windows, state.now)] if job.windows else []
    changes.append(record.held_until or None)
    room = state.reserved.required_by(job)
    changes.append(None if room is None else room.wanted.begin)
    change = min((at for at in changes if at is not None and at > state.now), default=None)
    if change is not None:
        heapq.heappush(state.window_changes, (change, record.sequence, record))


def watch_fresh(state: State) -> None:
    """Schedule new keys for jobs that joined a line since the last cycle and still wait."""
    for record in state.fresh:
        if record.line:
            *_, due = line_up(state, record)
            if due < NEVER:
                record.rekey_at = due
                heapq.heappush(state.rekeys, (due, record.sequence, record.id))
            if state.orderings.of(record.group).bounds_waits and not record.job.is_background:
                record.look_at = max(record.requeued_at + FIRST_LOOK_S, state.now)
                heapq.heappush(state.looks, (record.look_at, record.sequence, record.id))
    state.fresh.clear()


def in_line(state: State, job: str, sequence: int) -> JobRecord | None:
    """The job of this id and arrival if it stands in a line; None if not, or if another has its id by now."""
    record = state.jobs.get(job)
    return record if record is not None and record.line and record.sequence == sequence else None


def rekey_due(state: State) -> None:
    """Compute the keys anew that are due."""
    rekeys, now = state.rekeys, state.now
    while rekeys and rekeys[0][0] <= now:
        due, sequence, job = rekeys[0]
        record = in_line(state, job, sequence)
        if record is None or record.rekey_at != due:
            heapq.heappop(rekeys)
            continue
        key, turn, record.displaces_above, record.rekey_at = line_up(state, record)
        state.waiting.rekey(record, key, turn)
        heapq.heapreplace(rekeys, (record.rekey_at, sequence, job))


def pause(state: State, record: JobRecord) -> None:
    """Wait before the next try after a refused start; the pause doubles with each refusal in a row."""
    pause_until(state, record, max(state.now + pause_after(record.failed_starts), record.retry_at))


def pause_after(tries: int) -> float:
    """Seconds before the next try after so many in vain, from 1: twice as long with each, up to a bound."""
    return min(FIRST_PAUSE_S * 2.0 ** min(tries - 1, MOST_DOUBLINGS), LONGEST_PAUSE_S)


def pause_until(state: State, record: JobRecord, instant: float) -> None:
    """Let a job line up again, or its lost tasks join it again, at an instant and not before."""
    state.growing.pop(record.id, None)
    heapq.heappush(state.paused, (instant, record.sequence, record))


def end_pauses(state: State) -> None:
    """Let jobs whose pause is over join their line again."""
    while state.paused and state.paused[0][0] <= state.now:
        _, _, record = heapq.heappop(state.paused)
        if record.id in state.running:
            state.watch_growth(record)
        elif record.state is JobState.QUEUED and not record.line and not record.scaled_to_zero:
            enqueue(state, record)


def rekey_queue(state: State, queue: str) -> None:
    """Renew the places of all that wait in a queue and below it, where another ordering is theirs now."""
    for record in [each for each in state.waiting if state.queues.is_below(each.queue, queue)]:
        if group_of(state, record) != record.group:
            rekey(state, record)


def rekey(state: State, record: JobRecord) -> None:
    """Renew the place of a job in the order after its forecast or its spec has changed."""
    if record.line:
        state.waiting.remove(record)
        record.line = ()  # out of its hours it joins none
        enqueue(state, record)
    elif record.held_until:
        state.held.reconsider(record)
