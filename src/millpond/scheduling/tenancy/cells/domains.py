"""A domain: the cells of one chain that are owed to one virtual cluster, apart from those pinned to certain hardware.

Cells of a level that are not bound are all alike, so they are only counted. A cell is bound to hardware while its owner
uses any of it; a pinned one always. Of bound cells, those parts that a task can be in (*units*: a machine, or the cell
if that is smaller) are sorted by how many of their cards are free.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import replace

from millpond.scheduling.tenancy.cells.chains import Cell, Chain
from millpond.scheduling.tenancy.cells.uses import STAYS, CardPart, CellUse


class Domain:
    """What one virtual cluster is owed of a chain.

    Attributes:
        cells, unbound: by level, how many cells are owed, and how many of these are not bound.
        pinned: the cell of a pinned domain.
        users: of each bound cell, how many of its cards are in use; classes: the same by class of who uses them.
        units: by the level of units and then by their free cards, the units as bits.
    """

    __slots__ = ("_free", "cells", "chain", "classes", "cluster", "pin", "pinned", "unbound", "units", "users")

    def __init__(self, cluster: str, chain: Chain, pin: str = "", pinned: Cell | None = None) -> None:
        self.cluster, self.chain, self.pin, self.pinned = cluster, chain, pin, pinned
        self.cells = [0] * (chain.top + 1)
        self.unbound = [0] * (chain.top + 1)
        self.users: dict[Cell, int] = {}
        self.classes: dict[int, int] = {}
        self.units: dict[int, list[int]] = {}
        self._free: dict[Cell, int] = {}
        if pinned is not None:
            self.bind(*pinned)

    def owe(self, level: int, count: int) -> None:
        """So many cells more of a level are owed."""
        self.cells[level] += count
        self.unbound[level] += count
        self.chain.demand[level] += count

    def count_unbound(self, sign: int) -> None:
        """Whether its cells that are not bound are among those that the chain owes: -1 for no longer."""
        for level, count in enumerate(self.unbound):
            self.chain.demand[level] += sign * count

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

    def hold(self, cell: Cell, leaves: Sequence[int], use: CellUse) -> None:
        """A task begins to use cards of a bound cell, all on one machine."""
        holders, gone = self.chain.holders, self.chain.gone[0]
        for leaf in leaves:
            holders[leaf] = use
        self.users[cell] += len(leaves)
        self.classes[use.priority] = self.classes.get(use.priority, 0) + len(leaves)
        self.shift(cell, leaves[0], -sum([not gone[leaf] for leaf in leaves]))

    def release(self, leaves: Sequence[int]) -> None:
        """Cards of a bound cell on one machine are used no longer; the cell with the last one is unbound."""
        holders, gone, cell = self.chain.holders, self.chain.gone[0], self.chain.bound_cell(leaves[0])
        assert cell is not None
        for leaf in leaves:
            self.classes[holders.pop(leaf).priority] -= 1
        self.users[cell] -= len(leaves)
        if self.users[cell] or self.pinned is not None:
            self.shift(cell, leaves[0], sum([not gone[leaf] for leaf in leaves]))
        else:
            self.unbind(*cell)

    def hold_part(self, cell: Cell, leaf: int, use: CellUse, part: CardPart) -> None:
        """A task begins to use a part of a card, which the first one takes for all of them."""
        parts = self.chain.parts.setdefault(leaf, [])
        if not parts:
            self.hold(cell, (leaf,), replace(use, owner="", priority=STAYS, part=CardPart()))
        insort(parts, (use.owner, part))

    def release_part(self, leaf: int, owner: str, part: CardPart) -> None:
        """A task uses its part no longer; the card is free with the last one."""
        parts = self.chain.parts[leaf]
        parts.remove((owner, part))
        if not parts:
            del self.chain.parts[leaf]
            self.release((leaf,))

    def shift(self, cell: Cell, leaf: int, change: int) -> None:
        """So many cards more, or fewer, are free of that part of a bound cell which a card is in."""
        level = min(cell[0], self.chain.node_level)
        unit = level, self.chain.number(level, leaf)
        free = self._free[unit] + change
        self._unsort(unit)
        self._sort(unit, free)

    def has_below(self, priority: int) -> bool:
        """Whether work of a lower class uses any of it."""
        return any(count and each < priority for each, count in self.classes.items())

    def quiet(self, level: int) -> int:
        """How many clean cells of a level nobody is on."""
        chain, found = self.chain, 0
        for at in range(level, chain.top + 1):
            each, cells = chain.size[at] // chain.size[level], chain.clean[at]
            while cells:
                low = cells & -cells
                first = (low.bit_length() - 1) * each
                found += chain.visitors[level][first : first + each].count(0)
                cells ^= low
        return found

    def is_free(self, leaf: int) -> bool:
        """Whether a card of a bound cell may be used."""
        return leaf not in self.chain.holders and not self.chain.gone[0][leaf]

    def takes(self, leaf: int, part: CardPart | None) -> bool:
        """Whether a card of a bound cell may be used, or a part of it."""
        return self.chain.has_room(leaf, part) and not self.chain.gone[0][leaf]

    def copy(self, chain: Chain) -> Domain:
        """The same on a copy of its chain."""
        twin = Domain(self.cluster, chain, self.pin)
        twin.pinned = self.pinned
        twin.cells, twin.unbound = list(self.cells), list(self.unbound)
        twin.users, twin._free, twin.classes = dict(self.users), dict(self._free), dict(self.classes)
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
