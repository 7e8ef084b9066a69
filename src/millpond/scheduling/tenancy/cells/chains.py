"""A chain: hardware of one kind as a tree in which all cells of a level are alike, and which of them are left.

Cells are numbered by level from 0, a single card, upwards, so a cell is known by its level and number, and its parent,
children and cards follow by division. A cell is *clean* when nothing below it is bound to a guarantee, broken, or held
by work that cannot leave. Each level has its largest clean cells as the bits of one integer: taking a cell splits what
it is part of, and giving it back joins it with its siblings as soon as all are clean, whatever the order of events.

Source: Zhao et al., "HiveD: Sharing a GPU Cluster for Deep Learning with Guarantees", OSDI 2020, section 3.3 (buddy
allocation of cells).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from millpond.model.errors import InvalidInputError
from millpond.model.tenancy.chains import ChainSpec
from millpond.scheduling.tenancy.cells.uses import CardPart, CellUse

if TYPE_CHECKING:
    from millpond.scheduling.tenancy.cells.domains import Domain

Cell = tuple[int, int]
"""Level and number."""


class Chain:
    """The cells of one kind of hardware.

    Attributes:
        size: cards of one cell, by level.
        clean, spare: the largest clean cells of each level as bits, and how many they are.
        demand: by level, how many cells are owed and not bound.
        gone: by level and cell, how many of its cards are broken or held by what cannot leave.
        visitors: by level and cell, how many tasks that may be asked to leave are on its cards.
        holders: who uses a card of a bound cell; nobody by name where several share it.
        parts: who shares such a card, and what each has of it, in order.
        bound: to whom a cell is bound.
    """

    __slots__ = (
        "_by_visitors", "bound", "clean", "demand", "fans", "gone", "holders", "node_level", "parts", "size", "spare",
        "spec", "top", "visitors",
    )  # fmt: skip

    def __init__(self, spec: ChainSpec) -> None:
        self.spec = spec
        self.fans, self.node_level, self.top = spec.fans, spec.node_level, len(spec.levels) - 1
        self.size = spec.sizes
        leaves = len(spec.nodes) * self.size[self.node_level]
        wrong = [name for name, cards in spec.nodes if len(cards) != self.size[self.node_level]]
        if wrong or leaves % self.size[-1] or len(self.fans) != self.top:
            raise InvalidInputError(
                f"the cells of {spec.name} are not all alike" + (f": node {wrong[0]}" if wrong else ""),
                "give cells with other children a type of their own",
            )
        counts = [leaves // size for size in self.size]
        self.clean = [0] * self.top + [(1 << counts[-1]) - 1]
        self.spare = [0] * self.top + [counts[-1]]
        self.demand = [0] * (self.top + 1)
        self.gone = [[0] * count for count in counts]
        self.visitors = [[0] * count for count in counts]
        self._by_visitors: list[dict[int, int]] = [{0: (1 << count) - 1} for count in counts]
        self.holders: dict[int, CellUse] = {}
        self.parts: dict[int, list[tuple[str, CardPart]]] = {}
        self.bound: dict[Cell, Domain] = {}

    # ---- the tree -----------------------------------------------------------------------------------------------

    def number(self, level: int, leaf: int) -> int:
        """The cell of a level that a card is in."""
        return leaf // self.size[level]

    def leaves(self, level: int, cell: int) -> range:
        """The cards of a cell."""
        return range(cell * self.size[level], (cell + 1) * self.size[level])

    def device_of(self, leaf: int) -> str:
        """The id of a card."""
        return self.spec.nodes[leaf // self.size[self.node_level]][1][leaf % self.size[self.node_level]]

    def nodes_in(self, level: int, cell: int) -> range:
        """The machines of a cell, or that one which it is part of."""
        if level < self.node_level:
            node = cell * self.size[level] // self.size[self.node_level]
            return range(node, node + 1)
        each = self.size[level] // self.size[self.node_level]
        return range(cell * each, (cell + 1) * each)

    # ---- what is clean ------------------------------------------------------------------------------------------

    def is_clean(self, level: int, cell: int) -> bool:
        """Whether a cell is wholly clean."""
        for at in range(level, self.top + 1):
            if self.clean[at] >> cell & 1:
                return True
            if at < self.top:
                cell //= self.fans[at]
        return False

    def take(self, level: int, cell: int) -> None:
        """What is clean of a cell is so no longer; what it was part of is split."""
        at, above = level, cell
        while not self.clean[at] >> above & 1:
            if at == self.top:
                self._take_parts(level, cell)
                return
            above //= self.fans[at]
            at += 1
        self._clear(at, 1 << above)
        while at > level:
            at -= 1
            fan, path = self.fans[at], cell * self.size[level] // self.size[at]
            self._set(at, ((1 << fan) - 1) << above * fan ^ 1 << path)
            above = path

    def _take_parts(self, level: int, cell: int) -> None:
        if self.clean[level] >> cell & 1:
            self._clear(level, 1 << cell)
        elif level:
            fan = self.fans[level - 1]
            for child in range(cell * fan, (cell + 1) * fan):
                self._take_parts(level - 1, child)

    def give(self, level: int, cell: int) -> None:
        """What is not gone of a cell is clean again, joined with its siblings where all are clean."""
        if self.gone[level][cell]:
            if level:
                fan = self.fans[level - 1]
                for child in range(cell * fan, (cell + 1) * fan):
                    self.give(level - 1, child)
            return
        while level < self.top:
            fan = self.fans[level]
            others = ((1 << fan) - 1) << cell // fan * fan ^ 1 << cell
            if self.clean[level] & others != others:
                break
            self._clear(level, others)
            cell //= fan
            level += 1
        self._set(level, 1 << cell)

    def shortage(self) -> list[int]:
        """By level, how many of the cells that are owed and not bound have no place in what is clean."""
        short, left = [0] * (self.top + 1), 0
        for level in range(self.top, -1, -1):
            if level < self.top:
                left *= self.fans[level]
            left += self.spare[level]
            short[level] = max(0, self.demand[level] - left)
            left = max(0, left - self.demand[level])
        return short

    def _set(self, level: int, cells: int) -> None:
        self.clean[level] |= cells
        self.spare[level] += cells.bit_count()

    def _clear(self, level: int, cells: int) -> None:
        self.clean[level] ^= cells
        self.spare[level] -= cells.bit_count()

    def is_bindable(self, level: int, cell: int) -> bool:
        """Whether no part of a cell is bound, nor any that it is part of; some of it may be gone."""
        if self.is_clean(level, cell):
            return True
        first, size = cell * self.size[level], self.size[level]
        for at in range(self.top + 1):
            each = self.size[at]
            if any((at, number) in self.bound for number in range(first // each, (first + size - 1) // each + 1)):
                return False
        return True

    # ---- cards --------------------------------------------------------------------------------------------------

    def bound_cell(self, leaf: int) -> Cell | None:
        """The bound cell that a card is in."""
        for level, size in enumerate(self.size):
            if (cell := (level, leaf // size)) in self.bound:
                return cell
        return None

    def lose(self, leaf: int) -> None:
        """A card is broken, or held by what cannot leave, for one reason more."""
        for level, size in enumerate(self.size):
            self.gone[level][leaf // size] += 1
        if self.gone[0][leaf] == 1:
            cell = self.bound_cell(leaf)
            if cell is None:
                self.take(0, leaf)
            else:
                self._shift_bound(cell, leaf, -1)

    def regain(self, leaf: int) -> None:
        """One of these reasons is gone."""
        for level, size in enumerate(self.size):
            self.gone[level][leaf // size] -= 1
        if not self.gone[0][leaf]:
            cell = self.bound_cell(leaf)
            if cell is None:
                self.give(0, leaf)
            else:
                self._shift_bound(cell, leaf, 1)

    def _shift_bound(self, cell: Cell, leaf: int, change: int) -> None:
        """A card of a bound cell is gone, or is there again; one in use was not free before, nor is now."""
        if leaf not in self.holders:
            self.bound[cell].shift(cell, leaf, change)

    def has_room(self, leaf: int, part: CardPart | None) -> bool:
        """Whether nobody uses a card or, for a part, it is one that is shared."""
        return leaf not in self.holders or (part is not None and leaf in self.parts)

    def owners_on(self, leaf: int) -> Iterable[str]:
        """Who uses a card of a bound cell, alone or with others."""
        if leaf in self.parts:
            return [owner for owner, _ in self.parts[leaf]]
        return (self.holders[leaf].owner,) if leaf in self.holders else ()

    def visit(self, leaves: Iterable[int], sign: int) -> None:
        """A task that may be asked to leave comes to cards, or with ``sign`` -1 leaves them."""
        touched: dict[int, int] = {}
        for leaf in leaves:
            touched[leaf] = touched.get(leaf, 0) + sign
        for level in range(self.top + 1):
            counts, by_visitors = self.visitors[level], self._by_visitors[level]
            above: dict[int, int] = {}
            for cell, change in touched.items():
                before = counts[cell]
                counts[cell] = after = before + change
                bit = 1 << cell
                by_visitors[before] ^= bit
                by_visitors[after] = by_visitors.get(after, 0) | bit
                if level < self.top:
                    parent = cell // self.fans[level]
                    above[parent] = above.get(parent, 0) + change
            touched = above

    def quietest(self, level: int, cells: int) -> Iterator[int]:
        """These cells of a level, those with the fewest visitors first, then by number."""
        by_visitors = self._by_visitors[level]
        for count in sorted(by_visitors):
            found = cells & by_visitors[count]
            while found:
                cell = (found & -found).bit_length() - 1
                yield cell
                found &= found - 1

    def copy(self) -> Chain:
        """The same cells with nothing bound."""
        twin = Chain.__new__(Chain)
        for name in ("spec", "fans", "node_level", "top", "size"):
            setattr(twin, name, getattr(self, name))
        twin.clean, twin.spare, twin.demand = list(self.clean), list(self.spare), list(self.demand)
        twin.gone = [list(counts) for counts in self.gone]
        twin.visitors = [list(counts) for counts in self.visitors]
        twin._by_visitors = [dict(cells) for cells in self._by_visitors]
        twin.holders, twin.bound = dict(self.holders), {}
        twin.parts = {leaf: list(parts) for leaf, parts in self.parts.items()}
        return twin


def lower_first(counts: Sequence[int]) -> list[int]:
    """The levels with a count, from the smallest cells up."""
    return [level for level, count in enumerate(counts) if count > 0]
