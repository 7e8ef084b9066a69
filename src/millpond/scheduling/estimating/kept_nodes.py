"""Nodes of which cards are kept for advance reservations, as futures see them: as much is closed to others as is kept.

Those who started on kept cards give them back to the reservation, not to others, until it is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from millpond.model.resources import CARD_MILLI
from millpond.scheduling.cycle.reserved_places import cards_of
from millpond.scheduling.ordering.forecasts import NEVER
from millpond.scheduling.records import JobRecord
from millpond.scheduling.reserving.reserved_rooms import ReservedRoom
from millpond.scheduling.reserving.upkeep import leaving_for_reservations
from millpond.scheduling.state import State

CLOSED = 1 << 50
"""Less room on a closed node."""

Amount = Callable[[int, int], int]
"""How much of a resource is closed to others with so many of so many cards."""


class KeptNodes:
    """The reservations of one state."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._rooms = [room for room in state.reserved.by_name.values() if room.cards_on]
        self._unused = {
            room.wanted.name: state.reserved.unused(room, state.running, state.cluster)
            for room in self._rooms
            if room.wanted.covers(state.now)
        }
        self._leaving = leaving_for_reservations(state)

    def now(self, node: str, amount: Amount) -> int:
        """How much of a node is closed to others now."""
        return sum(self._closed(room, node, amount) for room in self._rooms if room.wanted.name in self._unused)

    def changes(self, node: str, amount: Amount) -> Iterator[tuple[float, int]]:
        """When more of a node is closed to others, and when it is open again: instants, and how much opens."""
        for room in self._rooms:
            if node in room.cards_on:
                closed = self._closed(room, node, amount)
                if room.wanted.name not in self._unused:
                    yield room.wanted.begin, -closed
                yield room.wanted.until, closed

    def _closed(self, room: ReservedRoom, node: str, amount: Amount) -> int:
        cards = room.cards_on.get(node, 0)
        if room.wanted.name in self._unused:
            cards = self._unused[room.wanted.name].get(node, 0) // CARD_MILLI
        index = self._state.cluster.node_index.get(node)
        return 0 if index is None or not cards else amount(cards, cards_of(self._state, index))

    def leaves_at(self, record: JobRecord) -> float:
        """When a running job has left for a reservation that it is in the way of."""
        return self._leaving.get(record.id, NEVER)

    def stays_until(self, record: JobRecord) -> float:
        """Until when the room of a running job is nobody else's, by the reservation whose cards it has."""
        ends = (room.wanted.until for room in self._rooms if room.has_user(record))
        return max(ends, default=-NEVER)
