"""A domain: the cells of one chain that are owed to one virtual cluster, apart from those pinned to certain hardware.

Cells of a level that are not bound are all alike, so they are only counted. A cell is bound to hardware while its owner
uses any of it; a pinned one always. Of bound cells, those parts that a task can be in (*units*: a machine, or the cell
if that is smaller) are sorted by how many of their cards are free.
"""

from __future__ import annotations

from dataclasses import dataclass

from millpond.scheduling.tenancy.cells.chains import Cell, Chain


@dataclass(frozen=True, slots=True)
class CellUse:
    """By what right a task is on its cards.

    Attributes:
        owner: the job.
        cluster: the virtual cluster whose cells it uses.
        level: name of the level of the cell that it is in.
        pin: name of the pinned cell; empty for one that is not.
        lazy: whether it stays as a visitor where its cells go to a higher class and nobody needs its cards.
    """

    owner: str
    cluster: str
    level: str
    pin: str = ""
    priority: int = 0
    lazy: bool = True


class Domain:
    """What one virtual cluster is owed of a chain.

    Attributes:
        cells, unbound: by level, how many cells are owed, and how many of these are not bound.
        pinned: the cell of a pinned domain.
        users: of each bound cell, how many of its cards are in use.
        units: by the level of units and then by their free cards, the units as bits.
    """

    __slots__ = ("_free", "cells", "chain", "cluster", "pin", "pinned", "unbound", "units", "users")

    def __init__(self, cluster: str, chain: Chain, pin: str = "", pinned: Cell | None = None) -> None:
        self.cluster, self.chain, self.pin, self.pinned = cluster, chain, pin, pinned
        self.cells = [0] * (chain.top + 1)
        self.unbound = [0] * (chain.top + 1)
        self.users: dict[Cell, int] = {}
        self.units: dict[int, list[int]] = {}
        self._free: dict[Cell, int] = {}
        if pinned is not None:
            self.bind(*pinned)

    def owe(self, level: int, count: int) -> None:
        """So many cells more of a level are owed."""
        self.cells[level] += count
        self.unbound[level] += count
        self.chain.demand[level] += count

    def bind(self, level: int, cell: int) -> None:
        """Bind a clean cell."""
        chain = self.chain
        chain.take(level, cell)
        chain.bound[level, cell] = self
        if self.pinned is None:
            self.unbound[level] -= 1
            chain.demand[level] -= 1
        self.users[level, cell] = 0
        for unit in self._units_of(level, cell):
            leaves = chain.leaves(*unit)
            self._sort(unit, len(leaves) - sum(1 for leaf in leaves if chain.gone[0][leaf]))

    def unbind(self, level: int, cell: int) -> None:
        """A bound cell that nobody uses is clean again, but for what is gone of it."""
        chain = self.chain
        for unit in self._units_of(level, cell):
            self._unsort(unit)
        del self.users[level, cell], chain.bound[level, cell]
        self.unbound[level] += 1
        chain.demand[level] += 1
        chain.give(level, cell)

    def hold(self, cell: Cell, leaf: int, use: CellUse) -> None:
        """A task begins to use a card of a bound cell."""
        self.chain.holders[leaf] = use
        self.users[cell] += 1
        self.recount(cell, leaf)

    def release(self, leaf: int) -> None:
        """A card is used no longer; the cell with the last one is unbound."""
        cell = self.chain.bound_cell(leaf)
        assert cell is not None
        del self.chain.holders[leaf]
        self.users[cell] -= 1
        if self.users[cell] or self.pinned is not None:
            self.recount(cell, leaf)
        else:
            self.unbind(*cell)

    def recount(self, cell: Cell, leaf: int) -> None:
        """A card of a bound cell may be free, or may no longer be so."""
        level = min(cell[0], self.chain.node_level)
        unit = level, self.chain.number(level, leaf)
        self._unsort(unit)
        self._sort(unit, sum(1 for each in self.chain.leaves(*unit) if self.is_free(each)))

    def is_free(self, leaf: int) -> bool:
        """Whether a card of a bound cell may be used."""
        return leaf not in self.chain.holders and not self.chain.gone[0][leaf]

    def free_of(self, unit: Cell) -> int:
        """How many cards of a unit are free."""
        return self._free[unit]

    def copy(self, chain: Chain) -> Domain:
        """The same on a copy of its chain."""
        twin = Domain(self.cluster, chain, self.pin)
        twin.pinned = self.pinned
        twin.cells, twin.unbound = list(self.cells), list(self.unbound)
        twin.users, twin._free = dict(self.users), dict(self._free)
        twin.units = {level: list(by_free) for level, by_free in self.units.items()}
        for cell in self.users:
            chain.bound[cell] = twin
        return twin

    def _units_of(self, level: int, cell: int) -> list[Cell]:
        chain = self.chain
        if level <= chain.node_level:
            return [(level, cell)]
        return [(chain.node_level, node) for node in chain.nodes_in(level, cell)]

    def _sort(self, unit: Cell, free: int) -> None:
        level, number = unit
        self._free[unit] = free
        by_free = self.units.setdefault(level, [0] * (self.chain.size[level] + 1))
        by_free[free] |= 1 << number

    def _unsort(self, unit: Cell) -> None:
        level, number = unit
        self.units[level][self._free.pop(unit)] ^= 1 << number
