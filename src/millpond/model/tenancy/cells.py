"""Cells that a queue is owed: so many whole machines, sockets or racks."""

from __future__ import annotations

import re
from dataclasses import dataclass

from millpond.model.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class CellCount:
    """So many cells of a kind that a queue is owed.

    Attributes:
        level: ``card``, ``4 cards``, ``switch``, ``socket``, ``node`` or ``rack of 4 nodes``.
    """

    level: str
    count: int

    def __post_init__(self) -> None:
        if self.level not in ("card", "switch", "socket", "node") and not _COUNTED.fullmatch(self.level):
            raise InvalidInputError(
                f"no cells {self.level!r}", "write card, '4 cards', switch, socket, node or 'rack of 4 nodes'"
            )
        if self.count < 1:
            raise InvalidInputError(f"{self.count} cells {self.level}", "ask for one or more")

    @property
    def cards(self) -> int:
        """How many cards one has, if its name says so; else 0."""
        if self.level == "card":
            return 1
        return int(self.level.split()[0]) if self.level.endswith("cards") else 0

    @property
    def least_cards(self) -> int:
        """How many cards one has at least, whatever the hardware."""
        return self.cards or max(self.rack_nodes, 1)

    @property
    def rack_nodes(self) -> int:
        """How many machines a rack has; 0 for what is no rack."""
        return int(self.level.split()[2]) if self.level.startswith("rack") else 0


@dataclass(frozen=True, slots=True)
class CellUsage:
    """What became of the cells of one level that a queue and those below it are owed.

    Attributes:
        level: as the hardware has it: ``node`` where ``8 cards`` are owed of machines of 8.
        pinned: they are certain machines.
        owed: how many, of which the other four are parts.
        in_use: work of the queue is in them.
        free: nobody would have to leave them.
        lent: others would.
        bad: there is no healthy hardware for them.
    """

    level: str
    pinned: bool
    owed: int
    in_use: int
    free: int
    lent: int
    bad: int


_COUNTED = re.compile(r"([2-9]|[1-9]\d{1,5}) cards|rack of ([2-9]|[1-9]\d{1,5}) nodes")
