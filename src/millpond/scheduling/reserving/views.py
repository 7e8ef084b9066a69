"""Reservations as they are shown."""

from __future__ import annotations

from dataclasses import dataclass

from millpond.model.tenancy.reservations import AdvanceReservation
from millpond.scheduling.state import State


@dataclass(frozen=True, slots=True)
class ReservationView:
    """A reservation that is not over.

    Attributes:
        cards_on: by name of the node, how many of its cards are kept; empty before they are chosen.
        unused_milli: how much of these nobody has taken, while it lasts.
        users: ids of the jobs that started on them and run.
    """

    reservation: AdvanceReservation
    cards_on: dict[str, int]
    unused_milli: int
    users: tuple[str, ...]


def reservation_views(state: State) -> list[ReservationView]:
    """All of them, in the order in which they were made."""
    return [
        ReservationView(
            room.wanted,
            dict(room.cards_on),
            sum(state.reserved.unused(room, state.running, state.cluster).values()),
            tuple(job for job in room.users if job in state.running and room.has_user(state.running[job])),
        )
        for room in state.reserved.by_name.values()
    ]
