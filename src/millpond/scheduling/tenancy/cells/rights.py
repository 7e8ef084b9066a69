"""By which right work is on its cards: which cells of which queue they are, and who would lose cells for that."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from millpond.scheduling.tenancy.cells.allocator import CellAllocator
from millpond.scheduling.tenancy.cells.chains import lower_first
from millpond.scheduling.tenancy.cells.demotion import DemotionSearch, Entered
from millpond.scheduling.tenancy.cells.domains import Domain
from millpond.scheduling.tenancy.cells.stakes import class_in_cells
from millpond.scheduling.tenancy.cells.uses import CardPart, CellUse

if TYPE_CHECKING:
    from millpond.scheduling.records import JobRecord


class Place(NamedTuple):
    """A chain, and cards of it; for a part of a card, what it is."""

    chain: str
    leaves: list[int]
    part: CardPart | None = None


class RightSearch:
    """Looks for rights, and leaves the allocator as it was.

    Args:
        owners: the queues whose cells may be used, the nearest first.
    """

    def __init__(self, allocator: CellAllocator, owners: Sequence[str]) -> None:
        self._allocator = allocator
        self._owners = owners

    def find(self, record: JobRecord, places: Sequence[Place]) -> tuple[list[CellUse], list[str]]:
        """The rights of places that are not entered, one for each or none at all, and who loses cells for them."""
        entered, lost = self._enter(record, places), list[CellUse]()
        if entered:
            for chain, leaves, use in entered:
                self._allocator.release(chain, leaves, use.owner, use.part)
        else:
            lower = self._lower(record, {place.chain for place in places})
            entered, lost = DemotionSearch(self._allocator, lower, lambda: self._enter(record, places)).find()
        return [use for _, _, use in entered], [use.owner for use in lost]

    def _lower(self, record: JobRecord, chains: Collection[str]) -> list[CellUse]:
        """Who may lose cells of these chains to a job: a use of each, the lowest class first."""
        return [
            use
            for cluster in self._owners
            for domain in self._allocator.domains_of(cluster, None)
            if domain.chain.spec.name in chains
            for use in self._allocator.lower(domain, record.job.priority)
        ]

    def _enter(self, record: JobRecord, places: Sequence[Place]) -> Entered:
        """Hold all of these places by right; none of them, and nothing is returned, if one has no right."""
        entered: list[tuple[str, list[int], CellUse]] = []
        for place in places:
            chain, leaves, _ = place
            use = self._right(record, place)
            if use is None or not self._allocator.hold(chain, leaves, use):
                for taken, held, earlier in entered:
                    self._allocator.release(taken, held, earlier.owner, earlier.part)
                return []
            entered.append((chain, leaves, use))
        return entered

    def _right(self, record: JobRecord, place: Place) -> CellUse | None:
        for cluster in self._owners:
            for domain in self._allocator.domains_of(cluster, None):
                if domain.chain.spec.name == place.chain:
                    level = self._level_in(domain, place)
                    if level is not None:
                        name = domain.chain.spec.levels[level]
                        return CellUse(record.id, cluster, name, domain.pin, class_in_cells(record), place.part)
        return None

    def _level_in(self, domain: Domain, place: Place) -> int | None:
        """The level of the cell of a domain in which these cards are, or could be, used."""
        chain, leaves = domain.chain, place.leaves
        bound = chain.bound_cell(leaves[0])
        if bound is not None:
            is_ours = chain.bound[bound] is domain and chain.number(bound[0], leaves[-1]) == bound[1]
            return bound[0] if is_ours and all(domain.takes(leaf, place.part) for leaf in leaves) else None
        for level in lower_first(domain.unbound) if domain.pinned is None else ():
            number = chain.number(level, leaves[0])
            is_in_one = number == chain.number(level, leaves[-1]) and chain.is_clean(level, number)
            if not is_in_one or domain.unbound[level] <= self._allocator.doomed(domain, level):
                continue
            if chain.clean[level] >> number & 1 or self._allocator.leaves_enough(chain, level, number):
                return level
        return None
