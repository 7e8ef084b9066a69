"""Work of lower classes loses its cells for work of a higher one in the same queue: whose, and at nobody else's cost.

A cell whose cards are not all usable counts as owed again once nobody uses it, and is no longer clean. So work that
loses such a cell for work that goes to a clean one would take a cell from other queues. Then the newcomer has what is
left of the very cells that were lost, or none. What its own queue comes to lack by that is its own choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from millpond.model.errors import InconsistentStateError
from millpond.scheduling.tenancy.cells.chains import Cell
from millpond.scheduling.tenancy.cells.domains import Domain
from millpond.scheduling.tenancy.cells.uses import CellUse

if TYPE_CHECKING:
    from millpond.scheduling.tenancy.cells.allocator import CellAllocator

Entered: TypeAlias = Sequence[tuple[str, Sequence[int], CellUse]]
"""Places that are held: the chain, the cards, and by what right."""


BoundCell: TypeAlias = tuple[Cell, Domain]
"""A cell, and to whom it is bound."""


class Demoted(NamedTuple):
    """Who has lost its cells on trial.

    Attributes:
        use: one of its rights.
        had: all of them, by chain and card.
        cells: those of its cells that are broken in part.
    """

    use: CellUse
    had: Mapping[tuple[str, int], CellUse]
    cells: Sequence[BoundCell]


class DemotionSearch:
    """Looks for those who have to lose their cells, and leaves the allocator as it was.

    Args:
        lower: a use of each of those who may, who goes first first.
        enter: holds all places of the newcomer, or none and returns nothing.
    """

    def __init__(self, allocator: CellAllocator, lower: Sequence[CellUse], enter: Callable[[], Entered]) -> None:
        self._allocator = allocator
        self._lower = lower
        self._enter = enter
        owners = {use.cluster for use in lower}
        domains = [domain for owner in owners for domain in allocator.domains_of(owner, None)]
        self._unbound = [(domain, list(domain.unbound)) for domain in domains]
        self._shortages = [(chain, chain.shortage()) for chain in allocator.chains.values()] if lower else []

    def find(self) -> tuple[Entered, list[CellUse]]:
        """The places of the newcomer, no longer held, and a use of each that loses its cells; nothing if none will do.

        One more loses its cells until there is a place; then those have them again who can.
        """
        gone: list[Demoted] = []
        for use in self._lower:
            had = self._allocator.uses_of(use.owner)
            gone.append(Demoted(use, had, self._broken(had)))
            self._allocator.demote(use.owner)
            for keeps_cells in (False, True):
                kept = self._keep(gone) if keeps_cells else []
                if keeps_cells and not kept:
                    continue
                places = self._enter()
                back = [each for each in reversed(gone) if places and self._allocator.promote(each.use.owner, each.had)]
                self._let_go(kept)
                is_sound = bool(places) and not self._takes_from_others()
                for chain, leaves, right in places:
                    self._allocator.release(chain, leaves, right.owner, right.part)
                if is_sound:
                    needed = [each for each in reversed(gone) if each not in back]
                    self._restore(needed)
                    return places, [each.use for each in needed]
                for each in back:
                    self._allocator.demote(each.use.owner)
        self._restore(gone)
        return (), []

    def _broken(self, had: Iterable[tuple[str, int]]) -> Sequence[BoundCell]:
        """Those of the bound cells of cards that are broken in part."""
        found: dict[BoundCell, None] = {}
        for name, leaf in had:
            chain = self._allocator.chains[name]
            cell = chain.bound_cell(leaf)
            if cell is not None and chain.gone[cell[0]][cell[1]]:
                found[cell, chain.bound[cell]] = None
        return list(found)

    def _keep(self, gone: Iterable[Demoted]) -> list[BoundCell]:
        """Bind again the broken cells that were lost, for the newcomer."""
        kept = []
        for cell, domain in (bound for each in gone for bound in each.cells):
            if domain.unbound[cell[0]] and domain.chain.is_bindable(*cell):
                domain.bind(*cell)
                kept.append((cell, domain))
        return kept

    def _let_go(self, kept: Iterable[BoundCell]) -> None:
        for cell, domain in kept:
            if domain.chain.bound.get(cell) is domain and not domain.users[cell]:
                domain.unbind(*cell)

    def _takes_from_others(self) -> bool:
        """Whether less of what is owed has a place than before, what the queue gave back itself left aside."""
        own = [
            (domain.chain, level, more)
            for domain, before in self._unbound
            for level, more in enumerate(now - then for now, then in zip(domain.unbound, before, strict=True))
            if more > 0
        ]
        for chain, level, more in own:
            chain.demand[level] -= more
        takes = any(
            now > then for chain, before in self._shortages for now, then in zip(chain.shortage(), before, strict=True)
        )
        for chain, level, more in own:
            chain.demand[level] += more
        return takes

    def _restore(self, lost: Iterable[Demoted]) -> None:
        for each in lost:
            if not self._allocator.promote(each.use.owner, each.had):
                raise InconsistentStateError(f"the cells of {each.use.owner} are not as they were")
