"""Reservations as they count in quotas: what is kept now and nobody has taken, and what begins while work is there.

What is kept for a queue counts for its limits, for those of its group and for those of all queues above, as cards that
it holds, and as one running job where none has started on them. So other work of the queue leaves it what was agreed.
The walk counts so by itself (``cycle.reserved_places``); who goes on or grows outside of it is asked about here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millpond.model.resources import Amount
from millpond.scheduling.nodes.cordon import stays_beside_reserved
from millpond.scheduling.records import JobRecord, TaskRecord
from millpond.scheduling.reserving.reserved_rooms import ReservedRoom
from millpond.scheduling.state import State


def admits_beside_reserved(state: State, record: JobRecord, amount: Amount) -> bool:
    """As ``Entitlements.admits``, beside what is reserved now, and later while the job would be there.

    Work that started on reserved cards has what was agreed upon.
    """
    if not state.reserved.by_name:
        return state.entitlements.admits(record, amount)
    if state.reserved.has_user(record):
        return state.entitlements.keeps_limits_as_reserved(record, amount)
    return beside_kept(state, lambda: state.entitlements.admits(record, amount)) and fits_amount_ahead(
        state, record, amount
    )


def claim_fits_beside_reserved(state: State, record: JobRecord, amount: Amount) -> bool:
    """Whether a job may have the place that is claimed for it beside what is reserved, perhaps since then.

    Work on the cards of its own reservation has what was agreed upon.
    """
    if not state.reserved.by_name or (record.job.reservation and state.reserved.open_to(record, state.now)):
        return True
    asks = state.entitlements.keeps_limits if record.job.preemptible else state.entitlements.admits
    return beside_kept(state, lambda: asks(record, amount)) and fits_amount_ahead(state, record, amount, asks)


def beside_kept(state: State, is_true: Callable[[], bool]) -> bool:
    """Whether something is true where what is kept now counts."""
    if not state.reserved.by_name:
        return is_true()
    mark = state.journal.begin()
    charge_kept(state)
    answer = is_true()
    state.journal.rollback(mark)
    return answer


def charge_kept(state: State) -> None:
    """Count what is kept now and nobody has taken for its queues, in the open transaction."""
    for room in state.reserved.by_name.values():
        if room.cards_on and room.wanted.covers(state.now):
            state.charge_unused(room, 1)


def charge_others_at_begin(state: State, room: ReservedRoom) -> None:
    """Count what the other reservations that hold when one begins keep unused then, in the open transaction."""
    begin = max(room.wanted.begin, state.now)
    for other in state.reserved.beside(room.wanted.name):
        if other.wanted.covers(begin):
            state.charge_unused(other, 1)


def covered_at_begin(state: State, room: ReservedRoom) -> set[str]:
    """The queues whose guarantees cover all that they hold, where a reservation and others that hold then count.

    So the queue that has reserved has other work leave for that before others lose what they are guaranteed.
    """
    mark = state.journal.begin()
    charge_others_at_begin(state, room)
    if room.cards_on:
        state.charge_unused(room, 1)
    else:
        _charge(state, [room])
    covered = {name for name in state.queues.by_name if state.queues.covers_all(name)}
    state.journal.rollback(mark)
    return covered


def fits_ahead(state: State, record: JobRecord, tasks: Sequence[TaskRecord]) -> bool:
    """Whether its bounds leave a job these tasks beside the reservations too that begin while it would be there.

    Else it would be asked to leave for one of them at once, or could not be asked to.
    """
    return not state.reserved.by_name or fits_amount_ahead(state, record, record.amount_of(tasks))


def fits_amount_ahead(
    state: State, record: JobRecord, amount: Amount, admits: Callable[[JobRecord, Amount], bool] | None = None
) -> bool:
    """The same for so much more.

    Args:
        admits: what is asked instead of ``Entitlements.admits``.
    """
    asks = admits or state.entitlements.admits
    return all(_is_admitted_beside(state, record, amount, rooms, asks) for rooms in _ahead_of(state, record))


def is_covered_beside_reserved(state: State, record: JobRecord) -> bool:
    """Whether a guarantee covers the least size of a waiting job beside all that is reserved while it would be there.

    Asked in a walk, in which what is kept now counts. Else it takes nothing back: its queue would have that twice.
    """
    if not state.reserved.by_name:
        return True

    def is_covered(record: JobRecord, amount: Amount) -> bool:
        return not state.entitlements.borrows(record, amount)

    least = record.demand.least_amount
    return is_covered(record, least) and fits_amount_ahead(state, record, least, is_covered)


def charge_in_turn_of(state: State, record: JobRecord) -> None:
    """Count what is kept now as the walk does when it looks at a job, in the open transaction.

    What a job may start on does not count against it: its reservation if it requires one that has begun.
    """
    charge_kept(state)
    for room in state.reserved.open_to(record, state.now) if record.job.reservation else ():
        state.charge_unused(room, -1)


def charge_ahead_of(state: State, record: JobRecord) -> None:
    """Count those reservations to come, in the open transaction, that alone keep a job from being admitted."""
    least, asks = record.demand.least_amount, state.entitlements.admits
    ahead = _ahead_of(state, record) if asks(record, least) else []
    found = (rooms for rooms in ahead if not _is_admitted_beside(state, record, least, rooms, asks))
    state.reserved.counted_ahead = next(found, [])
    _charge(state, state.reserved.counted_ahead)


def counts_in_turn_of(state: State, record: JobRecord, queue: str) -> bool:
    """Whether some of what a queue holds in the turn of a job that its bounds keep out is reserved."""
    own = state.reserved.required_by(record.job)
    kept = [
        room
        for room in state.reserved.by_name.values()
        if room.cards_on and room.wanted.covers(state.now) and room is not own
        and state.unused_of(room).gpu_milli
    ]  # fmt: skip
    return any(state.queues.is_below(room.wanted.queue, queue) for room in (*kept, *state.reserved.counted_ahead))


def _ahead_of(state: State, record: JobRecord) -> list[list[ReservedRoom]]:
    """The reservations that begin while a job that started now would be there: those that hold at each begin."""
    until = stays_beside_reserved(record, state.ordering.time_left, state.now)
    later = [room for room in state.reserved.by_name.values() if state.now < room.wanted.begin < until]
    begins = sorted({room.wanted.begin for room in later})
    return [[room for room in later if room.wanted.covers(begin)] for begin in begins]


def _is_admitted_beside(
    state: State,
    record: JobRecord,
    amount: Amount,
    rooms: Sequence[ReservedRoom],
    admits: Callable[[JobRecord, Amount], bool],
) -> bool:
    mark = state.journal.begin()
    _charge(state, rooms)
    is_admitted = admits(record, amount)
    state.journal.rollback(mark)
    return is_admitted


def _charge(state: State, rooms: Sequence[ReservedRoom]) -> None:
    for room in rooms:
        state.charge_reserved(room.wanted.queue, state.amounts.of_reservation(room.wanted), 1, 1)
