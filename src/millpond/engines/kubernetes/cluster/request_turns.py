"""Which request to the API server goes next, where more want to than may at once.

Without an order, all pods of a large array are made before the first of them is bound, and whoever comes later waits
for all of that. What ends a start goes before what begins one, and words that no work waits for come last. No kind of
request waits for ever, however many there are of a more urgent one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

LEAST_URGENT_EVERY: Final = 8
"""One request in so many is of the least urgent kind that waits."""


class Urgency(IntEnum):
    """What a request is for, the most urgent first."""

    BINDING = 0
    CHANGE = 1
    MAKING = 2
    WORDS = 3


@dataclass(frozen=True, slots=True)
class RequestTurn:
    """Where a request stands in line.

    Attributes:
        group: groups take turns; within one it is first come, first served.
    """

    urgency: Urgency = Urgency.CHANGE
    group: str = ""


BINDING: Final = RequestTurn(Urgency.BINDING)
CHANGE: Final = RequestTurn()
WORDS: Final = RequestTurn(Urgency.WORDS)


def making_for(job: str) -> RequestTurn:
    """The turn of what is made for a job: the members of an array are one group, jobs by themselves another."""
    array, bracket, _ = job.partition("[")
    return RequestTurn(Urgency.MAKING, array if bracket else "")


class RequestTurns:
    """Lets so many go on at once. Lives on one event loop."""

    def __init__(self, at_once: int) -> None:
        self._free = at_once
        self._granted = 0
        self._waiting: tuple[dict[str, deque[asyncio.Future[None]]], ...] = tuple({} for _ in Urgency)

    async def take(self, turn: RequestTurn) -> None:
        """Wait for a place; to be given back."""
        if self._free and not any(self._waiting):
            self._free -= 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[turn.urgency].setdefault(turn.group, deque()).append(place)
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():
                self.give_back()
            raise

    def give_back(self) -> None:
        """A place is free."""
        self._free += 1
        while self._free and (place := self._next()) is not None:
            if not place.cancelled():
                self._free -= 1
                place.set_result(None)

    def _next(self) -> asyncio.Future[None] | None:
        kinds = [groups for groups in self._waiting if groups]
        if not kinds:
            return None
        self._granted += 1
        groups = kinds[-1] if self._granted % LEAST_URGENT_EVERY == 0 else kinds[0]
        name, line = next(iter(groups.items()))
        del groups[name]
        place = line.popleft()
        if line:
            groups[name] = line  # behind the others
        return place
