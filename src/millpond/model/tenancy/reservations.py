"""Advance reservations: cards that a queue has for a span of time that was agreed beforehand."""

from __future__ import annotations

import math
from dataclasses import dataclass

from millpond.model.errors import InvalidInputError
from millpond.model.hardware.nodes import DEFAULT_POOL
from millpond.model.resources import CARD_MILLI


@dataclass(frozen=True, slots=True)
class AdvanceReservation:
    """Cards for the jobs of one queue, from one instant to another.

    Attributes:
        name: its own, among all reservations.
        cards: how many.
        begin, until: the span, in seconds.
        models: the device models that they may be; empty means any.
        whole_nodes: they are whole nodes, with all their cards.
        beyond_guarantee: they may go beyond what the queue is guaranteed, into what no queue is.
        by: who made it.
    """

    name: str
    queue: str
    cards: int
    begin: float
    until: float
    pool: str = DEFAULT_POOL
    models: tuple[str, ...] = ()
    whole_nodes: bool = False
    beyond_guarantee: bool = False
    by: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            raise InvalidInputError("a reservation without a name", "give it one")
        if self.cards < 1:
            raise InvalidInputError(f"a reservation of {self.cards} cards", "reserve at least one")
        if not math.isfinite(self.begin + self.until) or self.until <= self.begin:
            raise InvalidInputError(f"reservation {self.name!r} ends before it begins", "name an end behind the begin")

    @property
    def gpu_milli(self) -> int:
        """Its cards in milli."""
        return self.cards * CARD_MILLI

    def overlaps(self, begin: float, until: float) -> bool:
        """Whether it holds at any instant of a span."""
        return self.begin < until and begin < self.until

    def covers(self, instant: float) -> bool:
        """Whether it holds at that instant."""
        return self.begin <= instant < self.until
