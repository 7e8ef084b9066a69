"""Room that a job would have, and that is kept for others: for jobs ahead of it, for a reservation, or for both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from millpond.model.amounts import count_text
from millpond.model.reasons import Cause, Reason
from millpond.model.states import JobState
from millpond.model.tenancy.reservations import AdvanceReservation
from millpond.scheduling.cycle.claims import Claims
from millpond.scheduling.cycle.open_places import OpenPlaces
from millpond.scheduling.explaining.capacity_gap import CapacityGap
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State

MOST_KEEPERS: Final = 16
"""Jobs for which room is kept and of which one answer asks whether each alone is in the way."""


class KeptRoom:
    """Says for whom room is kept, on one state."""

    def __init__(self, state: State, claims: Claims, places: OpenPlaces, capacity_gap: CapacityGap) -> None:
        self._state = state
        self._claims = claims
        self._places = places
        self._capacity_gap = capacity_gap

    def for_others(self, record: JobRecord) -> Reason | None:
        """The reason of a job that would have room if none were kept for others; None if it would not."""

        def fits_without(some: list[str]) -> bool:
            with self._claims.without(some):
                return self._places.has_any(record)

        keepers = self._claims.keepers(record)
        if not keepers or not fits_without(keepers):
            return None
        holder, others, text = self._keeper(keepers, fits_without)
        return Reason(
            Cause.RESERVED,
            f"there is room, but it is {text}",
            (("kept_for", 1 + others),),
            self._capacity_gap.filters(record),
            blocked_by=holder,
        )

    def for_reservation(self, record: JobRecord) -> Reason | None:
        """The reason of a job that would have room if no cards were reserved in advance; None if it would not.

        It may have that beside the room that is kept for a job ahead of it.
        """
        state = self._state
        if not state.cordons.kept:
            return None
        with state.cordons.without_kept():
            placed = self._places.first(record)
        names = {state.cluster.node_name(holding.node) for _, holding in placed or ()}
        rooms = [room for room in state.reserved.by_name.values() if names & room.cards_on.keys()]
        if not rooms:
            return None
        wanted = min((room.wanted for room in rooms), key=lambda each: each.begin)
        return Reason(
            Cause.RESERVATION, _kept_text(wanted, state.now), (("reserved", wanted.cards),), opens_at=wanted.until
        )

    def for_both(self, record: JobRecord) -> Reason | None:
        """The reason of a job that would have room if none were kept for others nor cards for a reservation."""

        def beside_reservation(some: list[str]) -> Reason | None:
            with self._claims.without(some):
                return self.for_reservation(record)

        keepers = self._claims.keepers(record)
        reason = beside_reservation(keepers) if keepers else None
        if reason is None:
            return None
        holder, others, text = self._keeper(keepers, lambda some: beside_reservation(some) is not None)
        return replace(
            reason,
            summary=f"{reason.summary}; room is {text}",
            numbers=(*reason.numbers, ("kept_for", 1 + others)),
            blocked_by=holder,
        )

    def _keeper(self, keepers: list[str], fits_without: Callable[[list[str]], bool]) -> tuple[str, int, str]:
        """One of those for whom room is kept from a job, how many others there are, and the words for it.

        If keeping none for one alone would do, it is that one.
        """
        alone = next((job for job in keepers[:MOST_KEEPERS] if fits_without([job])), None)
        holder, others = alone or keepers[0], 0 if alone else len(keepers) - 1
        more = f" and {count_text(others, 'other job')}" if others else ""
        how = "claimed" if holder in self._claims.by_job else "reserved"
        why = "other work is leaving for it" if how == "claimed" else "it is ahead, and would else wait ever longer"
        if self._state.jobs[holder].state is JobState.STOPPING:
            why = "it is being moved there"
        return holder, others, f"{how} for {holder}{more}: {why}"


def _kept_text(wanted: AdvanceReservation, now: float) -> str:
    cards = "1 card is" if wanted.cards == 1 else f"{wanted.cards} cards are"
    kept = f"{cards} kept for reservation {wanted.name} of queue {wanted.queue}"
    if wanted.begin <= now:
        return f"there is room, but {kept}"
    return f"there is room, but {kept}, which begins before the job would have ended"
