"""Why a job waits because of its own advance reservation, and what reservations of its queue change for it."""

from __future__ import annotations

from dataclasses import replace

from millpond.model.reasons import Cause, Reason, StartEstimate
from millpond.model.resources import CARD_MILLI
from millpond.scheduling.cycle.claims import Claims
from millpond.scheduling.cycle.job_placement import Placer
from millpond.scheduling.cycle.reserved_places import ReservedPlaces
from millpond.scheduling.explaining.cordon_reasons import closed_for
from millpond.scheduling.explaining.quota import bounds_in_the_way
from millpond.scheduling.placement.arrays import NodeMask
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State


def why_not_begun(state: State, record: JobRecord) -> Reason | None:
    """Why a job waits that requires a reservation which has not begun; None for all others."""
    room = state.reserved.required_by(record.job)
    if room is None or room.wanted.begin <= state.now:
        return None
    begin = room.wanted.begin
    start = StartEstimate(begin, None, "its reservation begins then", likely_at=begin)
    text = f"it waits for its reservation {room.wanted.name}, which has not begun"
    return Reason(Cause.RESERVATION, text, start=start, opens_at=begin)


def why_reservation_full(state: State, claims: Claims, record: JobRecord) -> Reason | None:
    """Why a job waits that starts on the cards of its reservation alone; None for all others.

    Where enough of these are left, it is a limit of its queue, its group or its user.
    """
    room = state.reserved.required_by(record.job)
    if room is None:
        return None
    kept = sum(room.cards_on.values())
    left_milli = sum(state.reserved.unused(room, state.running, state.cluster).values())
    bound = bounds_in_the_way(state, claims, record) if left_milli >= record.demand.least_amount.gpu_milli else None
    if bound is not None:
        return bound
    left = left_milli // CARD_MILLI
    short = "" if kept >= room.wanted.cards else f"; {room.wanted.cards - kept} cannot be had now"
    return Reason(
        Cause.RESERVATION,
        f"it starts on the cards of its reservation {room.wanted.name} alone: {left} of {kept} are left{short}",
        (("reserved", kept), ("left", left)),
        opens_at=room.wanted.until,
    )


def closed_on_reserved(state: State, placer: Placer, claims: Claims, record: JobRecord) -> Reason | None:
    """The reason of a job that would start on cards that its queue has reserved, if their nodes did not close too soon.

    Others it cannot have, as what is reserved counts for the guarantee of its queue.
    """
    rooms = state.reserved.open_to(record, state.now) if record.gpu_milli else []
    if not rooms or claims.mask_on_reserved(record) is None:
        return None
    places = ReservedPlaces(state)

    def fits(mask: NodeMask | None) -> list[int]:
        mark = state.journal.begin()
        places.begin_walk()
        placed = next(filter(None, (places.place(placer, record, room, mask) for room in rooms)), ())
        state.journal.rollback(mark)
        return [holding.node for _, holding in placed]

    mark = state.journal.begin()
    claims.charge(1, but=record.id)
    reason = closed_for(state, claims, record, fits)
    state.journal.rollback(mark)
    there = "its queue has reserved cards there"
    return None if reason is None else replace(reason, summary=f"{reason.summary}; {there}")


def with_scattered_cards(state: State, record: JobRecord, reason: Reason) -> Reason:
    """A reason, and in its text of which reservations of its queue cards are left, on too many nodes for a job."""
    notes, cards = [], max(role.request.devices for role in record.job.roles)
    for room in state.reserved.open_to(record, state.now):
        left = [milli // CARD_MILLI for milli in state.reserved.unused(room, state.running, state.cluster).values()]
        if max(left) < cards <= sum(left):
            notes.append(
                f"of the {sum(left)} cards that reservation {room.wanted.name} of its queue has left, no "
                f"node has more than {max(left)}"
            )
    return replace(reason, summary="; ".join((reason.summary, *notes))) if notes else reason


def sooner_by_reservation(state: State, record: JobRecord, found: StartEstimate) -> StartEstimate:
    """When a job should start that may use a reservation to come, if that is sooner than without it.

    It counts for the first of its queue, as many as the reservation has cards for.
    """
    turns = state.waiting.turns
    ahead = [
        other
        for other in state.waiting
        if other.queue == record.queue and other.job.pool == record.job.pool and other is not record
        and turns.of(other) < turns.of(record)
    ]  # fmt: skip
    needed = record.gpu_milli + sum(other.gpu_milli for other in ahead)
    begins = [
        room.wanted.begin
        for room in state.reserved.by_name.values()
        if room.wanted.queue == record.queue and room.wanted.pool == record.job.pool
        and room.wanted.begin > state.now and record.gpu_milli and needed <= room.wanted.gpu_milli
    ]  # fmt: skip
    begin = min(begins, default=None)
    if begin is None or (found.latest_at is not None and found.latest_at <= begin and not found.unknown):
        return found
    earliest = min(found.earliest_at, begin)
    if found.unknown or found.likely_at is None:
        return StartEstimate(earliest, begin, "a reservation of its queue begins then", likely_at=begin)
    basis = f"{found.basis}; a reservation of its queue begins by the end of that"
    return StartEstimate(earliest, begin, basis, likely_at=min(found.likely_at, begin))
