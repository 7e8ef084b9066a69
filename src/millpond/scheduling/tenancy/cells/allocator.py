"""Where a gang goes in the cells that its queue is owed, and what others may not take of these.

A gang is packed into one chain: its tasks, the smallest first, go to those bound units of its cluster that they fill
best, else a further cell of the cluster is bound to hardware: the one with the fewest visitors or, where it is known
what these would lose (``losses``), with the least of that. It is taken from the smallest clean cell that is large
enough; from a larger one only if all that is owed to others still has a place, and where the smaller has visitors only
if that spares them. Where its cluster's own work of lower classes is in the way, that loses its cells: it stays as a
visitor unless its cards are needed. Tasks of parts of cards fill a card that has parts of the same cluster before they
take another one.

All clusters together are owed no more than there is at any level, and nothing that cannot leave takes what the rest
needs, so a request that fits what its cluster has left finds hardware with visitors on it at most. Hardware that breaks
may end that: then cells are *doomed*, in turn those of the clusters that are owed most of a level.

Source: Zhao et al., "HiveD: Sharing a GPU Cluster for Deep Learning with Guarantees", OSDI 2020.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from millpond.model.errors import InvalidInputError
from millpond.model.tenancy.chains import ChainSpec, ClusterSpec, require_fit
from millpond.scheduling.tenancy.cells.chains import Cell, Chain, lower_first
from millpond.scheduling.tenancy.cells.demotion import DemotionSearch, Entered
from millpond.scheduling.tenancy.cells.domains import Domain
from millpond.scheduling.tenancy.cells.losses import CellLosses
from millpond.scheduling.tenancy.cells.requests import CellPlace, CellPlan, CellRequest, PartOf
from millpond.scheduling.tenancy.cells.uses import CardPart, CellUse

NodeSet = Mapping[str, int]
"""Of chains, which of their nodes may be used, as bits; all of those that are not named."""


@dataclass(frozen=True, slots=True)
class _Reach:
    """Which machines of a chain may be used, and which of its cells come first.

    Attributes:
        nodes: as bits; None: all.
    """

    chain: Chain
    nodes: int | None
    losses: CellLosses | None

    def within(self, nodes: int | None) -> _Reach:
        """The same on some machines alone, as bits; None: on all of them."""
        if nodes is None:
            return self
        return replace(self, nodes=nodes if self.nodes is None else self.nodes & nodes)

    def includes(self, node: int) -> bool:
        return self.nodes is None or bool(self.nodes >> node & 1)

    def includes_any(self, level: int, cell: int) -> bool:
        """Whether any machine of a cell may be used."""
        return self.nodes is None or any(map(self.includes, self.chain.nodes_in(level, cell)))

    def in_order(self, level: int, cells: int) -> Iterator[int]:
        """Cells, as bits, from that on which a return costs least."""
        if self.losses is None:
            return self.chain.quietest(level, cells)
        return iter(self.losses.in_order(self.chain, level, cells))

    def harm(self, level: int) -> Sequence[float]:
        """What it costs that all visitors leave, by cell of a level."""
        return self.chain.visitors[level] if self.losses is None else self.losses.of(self.chain, level).tolist()


class CellAllocator:
    """The cells of all chains and clusters.

    Attributes:
        where: of each card's id, its chain and its number there.
    """

    def __init__(self, chains: Iterable[ChainSpec], clusters: Sequence[ClusterSpec]) -> None:
        """Raises InvalidInputError for what does not exist, or is more than there is at some level."""
        specs = {spec.name: spec for spec in chains}
        require_fit(specs, clusters)
        self.chains = {name: Chain(specs[name]) for name in sorted(specs, reverse=True)}
        self.where: dict[str, tuple[str, int]] = {}
        for name, spec in specs.items():
            leaves = (card for _, cards in spec.nodes for card in cards)
            self.where.update((card, (name, leaf)) for leaf, card in enumerate(leaves))
        self._domains: dict[tuple[str, str], list[Domain]] = {}
        self._uses: dict[str, dict[tuple[str, int], CellUse]] = {}
        self.clusters = tuple(clusters)
        for cluster in clusters:
            for pin in cluster.pinned:
                chain = self.chains[pin.chain]
                domain = Domain(cluster.name, chain, pin.name, (chain.spec.levels.index(pin.level), pin.cell))
                self._domains.setdefault((cluster.name, pin.name), []).append(domain)
        for cluster in clusters:
            for name, chain in self.chains.items():
                owed = [(level, count) for level, count in cluster.cells.get(name, {}).items() if count]
                if owed:
                    domain = Domain(cluster.name, chain)
                    for level, count in owed:
                        domain.owe(chain.spec.levels.index(level), count)
                    self._domains.setdefault((cluster.name, ""), []).append(domain)

    def copy(self) -> CellAllocator:
        """The same, for a twin that goes on by itself."""
        twin = CellAllocator.__new__(CellAllocator)
        twin.chains = {name: chain.copy() for name, chain in self.chains.items()}
        twin.where, twin.clusters = self.where, self.clusters
        twin._uses = {owner: dict(uses) for owner, uses in self._uses.items()}
        twin._domains = {
            key: [each.copy(twin.chains[each.chain.spec.name]) for each in domains]
            for key, domains in self._domains.items()
        }
        return twin

    # ---- what happens -------------------------------------------------------------------------------------------

    def hold(self, chain: str, leaves: Sequence[int], use: CellUse) -> bool:
        """A task begins to use cards by a right; False, and nothing done, if that holds no longer.

        The configuration may be another, or the cells are others' by now.
        """
        found = self.chains.get(chain)
        if found is None or use.level not in found.spec.levels:
            return False
        domain = next((each for each in self._domains.get((use.cluster, use.pin), ()) if each.chain is found), None)
        part = use.part
        if domain is None or any(leaf in found.holders and not found.has_room(leaf, part) for leaf in leaves):
            return False
        level = found.spec.levels.index(use.level)
        cell = level, found.number(level, leaves[0])
        if found.number(level, leaves[-1]) != cell[1]:
            return False
        if found.bound.get(cell) is not domain:
            if domain.pinned is not None or not domain.unbound[level] or not found.is_bindable(*cell):
                return False
            domain.bind(*cell)
        if part is None:
            domain.hold(cell, leaves, use)
        else:
            domain.hold_part(cell, leaves[0], use, part)
        uses = self._uses.setdefault(use.owner, {})
        for leaf in leaves:
            uses[chain, leaf] = use
        return True

    def release(self, chain: str, leaves: Iterable[int], owner: str, part: CardPart | None = None) -> bool:
        """A task uses its cards no longer; False, and nothing done, if it did not by right of a cell.

        Args:
            part: what it had of its card, if that was not all.
        """
        uses = self._uses.get(owner, {})
        held = [leaf for leaf in leaves if (chain, leaf) in uses]
        if held and part is not None:
            self._domain_of(chain, held[0]).release_part(held[0], owner, part)
        elif held:
            self._domain_of(chain, held[0]).release(held)
        for leaf in held:
            # Tasks of one job may share a card.
            if part is None or owner not in self.chains[chain].owners_on(leaf):
                del uses[chain, leaf]
        if held and not uses:
            del self._uses[owner]
        return bool(held)

    def demote(self, owner: str) -> dict[tuple[str, int], CellUse]:
        """All work of an owner loses its cells and stays as a visitor; what it had is returned."""
        uses = self._uses.pop(owner, {})
        for chain, leaf in uses:
            self._domain_of(chain, leaf).release((leaf,))
            self.chains[chain].visit((leaf,), 1)
        return uses

    def promote(self, owner: str, uses: Mapping[tuple[str, int], CellUse]) -> bool:
        """Undo a demotion; False, and nothing done, if its cells are others' by now."""
        done: list[tuple[str, int]] = []
        for (chain, leaf), use in uses.items():
            if not self.hold(chain, (leaf,), use):
                for taken, held in done:
                    self.release(taken, (held,), owner)
                return False
            done.append((chain, leaf))
        for chain, leaf in uses:
            self.chains[chain].visit((leaf,), -1)
        return True

    def uses_of(self, owner: str) -> Mapping[tuple[str, int], CellUse]:
        """What an owner uses by right of cells: the right by chain and card."""
        return self._uses.get(owner, {})

    def _domain_of(self, chain: str, leaf: int) -> Domain:
        found = self.chains[chain]
        cell = found.bound_cell(leaf)
        assert cell is not None
        return found.bound[cell]

    # ---- who gets what ------------------------------------------------------------------------------------------

    def plan(
        self, request: CellRequest, allowed: NodeSet | None = None, losses: CellLosses | None = None
    ) -> CellPlan | None:
        """Where a gang goes; None if what its clusters are owed has no room for it now. Changes nothing.

        Args:
            losses: what visitors would lose; with None they count alike.

        Raises:
            InvalidInputError: a cluster has no such cells at all; not where any cells of it will do.
        """
        for cluster in request.clusters:
            if request.pin is not None:
                self._require_owed(cluster, request)
            for domain in self.domains_of(cluster, request.pin):
                if request.models and domain.chain.spec.model not in request.models:
                    continue
                nodes = None if allowed is None else allowed.get(domain.chain.spec.name)
                plan = self._plan_in(domain, request, _Reach(domain.chain, nodes, losses))
                if plan is not None:
                    return plan
        return None

    def _require_owed(self, cluster: str, request: CellRequest) -> None:
        if not self.domains_of(cluster, None):
            raise InvalidInputError(f"{cluster} is owed no cells", "name a cluster with cells")
        domains = self.domains_of(cluster, request.pin)
        if request.pin and not domains:
            raise InvalidInputError(f"{cluster} has no pinned cell {request.pin!r}", "name one of its pinned cells")
        models = {each.chain.spec.model for each in domains}
        if request.models and not models & set(request.models):
            raise InvalidInputError(
                f"{cluster} is owed no cells of {', '.join(request.models)}", f"it has {', '.join(sorted(models))}"
            )

    def _plan_in(self, domain: Domain, request: CellRequest, reach: _Reach) -> CellPlan | None:
        places = self._pack(domain, request, reach)
        for place in places:
            self.release(place.chain, place.leaves, request.owner, place.use.part)
        if places or not request.preempts:
            return CellPlan(places) if places else None

        def enter() -> Entered:
            nonlocal places
            places = self._pack(domain, request, reach)
            return [(place.chain, place.leaves, place.use) for place in places]

        entered, lost = DemotionSearch(self, self.lower(domain, request.priority), enter).find()
        if not entered:
            return None
        return CellPlan(places, tuple(use.owner for use in lost))

    def lower(self, domain: Domain, priority: int) -> list[CellUse]:
        """One use of each owner of a lower class in a domain, the lowest class first."""
        chain, found = domain.chain, dict[str, CellUse]()
        if not domain.has_below(priority):
            return []
        for (level, cell), used in domain.users.items():
            if used:
                for leaf in chain.leaves(level, cell):
                    use = chain.holders.get(leaf)
                    if use is not None and use.priority < priority:
                        found[use.owner] = use
        return sorted(found.values(), key=lambda use: (use.priority, use.owner))

    def _pack(self, domain: Domain, request: CellRequest, reach: _Reach) -> tuple[CellPlace, ...]:
        """Hold cells for all tasks, in their order; none, and nothing held, if one has no place."""
        name, taken = domain.chain.spec.name, list[CellPlace]()
        if (spaced := request.spaced) is not None:
            spaced.begin()
        for task in sorted(range(len(request.cards)), key=lambda task: request.cards[task]):
            its_reach = reach if spaced is None else reach.within(spaced.open_to(task, name))
            part_of = request.parts.get(task)
            found = self._unit(domain, request.cards[task], its_reach, self._shared(domain, part_of, its_reach))
            if found is None:
                break
            level, leaves = found
            part = None if part_of is None else part_of(name, leaves[0])
            if part_of is not None and part is None:
                break
            owner, named = (request.owner, domain.cluster), domain.chain.spec.levels[level]
            use = CellUse(*owner, named, domain.pin, request.priority, part)
            if not self.hold(name, leaves, use):
                raise AssertionError(f"cells of {domain.cluster} that are free cannot be held")
            taken.append(CellPlace(task, name, leaves, use))
            if spaced is not None:
                spaced.take(task, name, domain.chain.nodes_in(0, leaves[0])[0])
        if len(taken) == len(request.cards):
            return tuple(sorted(taken, key=lambda place: place.task))
        for place in reversed(taken):
            self.release(name, place.leaves, request.owner, place.use.part)
        return ()

    def _shared(self, domain: Domain, part_of: PartOf | None, reach: _Reach) -> int | None:
        """The card for a task of a part: that with parts and enough room which costs least, then the fullest."""
        chain = domain.chain
        if part_of is None or not chain.parts:
            return None
        harm = reach.harm(0)

        def by_cost(leaf: int) -> tuple[float, int, int, int]:
            parts = [part for _, part in chain.parts[leaf]]
            compute, memory = sum(each.compute_milli for each in parts), sum(each.memory_mib for each in parts)
            return harm[leaf], -compute, -memory, leaf

        for leaf in sorted(chain.parts, key=by_cost):
            cell = chain.bound_cell(leaf)
            is_ours = cell is not None and chain.bound[cell] is domain and not chain.gone[0][leaf]
            if is_ours and reach.includes(chain.nodes_in(0, leaf)[0]) and part_of(chain.spec.name, leaf):
                return leaf
        return None

    def _unit(
        self, domain: Domain, cards: int, reach: _Reach, shared: int | None = None
    ) -> tuple[int, tuple[int, ...]] | None:
        """The level of the cell and the cards that one task takes of a domain: of what is bound, else of a new cell.

        Args:
            shared: a card of a bound cell that a part goes to.
        """
        chain = domain.chain
        if shared is not None:
            cell = chain.bound_cell(shared)
            assert cell is not None
            return cell[0], (shared,)
        unit = next(self._bound_units(domain, cards, reach), None)
        if unit is not None:
            cell = chain.bound_cell(chain.leaves(*unit)[0])
            assert cell is not None
            return cell[0], tuple(sorted(self._closest(domain, unit, cards, reach)))
        if cards > chain.size[chain.node_level]:
            return None
        for level in lower_first(domain.unbound):
            if chain.size[level] < cards or domain.unbound[level] <= self.doomed(domain, level):
                continue
            number = self._find_clean(reach, level)
            if number is None:
                continue
            within = number
            if level > chain.node_level:
                inside = sum(1 << node for node in chain.nodes_in(level, number) if reach.includes(node))
                within = next(reach.in_order(chain.node_level, inside))
            unit = min(level, chain.node_level), within
            return level, tuple(sorted(self._closest(domain, unit, cards, reach)))
        return None

    def _bound_units(self, domain: Domain, cards: int, reach: _Reach) -> Iterator[Cell]:
        """Units of bound cells with so many free cards, those first that are filled best, then with few visitors."""
        chain = domain.chain
        for free in range(cards, chain.size[chain.node_level] + 1):
            for level in sorted(domain.units):
                if free < len(domain.units[level]):
                    for number in reach.in_order(level, domain.units[level][free]):
                        if reach.includes(chain.nodes_in(level, number)[0]):
                            yield level, number

    def _closest(self, domain: Domain, cell: Cell, cards: int, reach: _Reach) -> list[int]:
        """So many free cards of a cell, close together, of cards alike those without visitors."""
        chain = domain.chain
        level, number = cell
        leaves = chain.leaves(level, number)
        if cards == len(leaves):
            return list(leaves)
        if level == 0:
            return [number]
        fan, chosen = chain.fans[level - 1], list[int]()
        free = {
            child: sum(1 for leaf in chain.leaves(level - 1, child) if domain.is_free(leaf))
            for child in range(number * fan, (number + 1) * fan)
        }
        visitors = reach.harm(level - 1)
        while cards:
            able = [child for child in free if free[child] >= cards]
            if able:
                best = min(able, key=lambda child: (visitors[child], free[child], child))
                return chosen + self._closest_free(domain, (level - 1, best), cards, reach)
            fullest = max(free, key=lambda child: (free[child], -visitors[child], -child))
            cards -= free[fullest]
            chosen += self._closest_free(domain, (level - 1, fullest), free.pop(fullest), reach)
        return chosen

    def _closest_free(self, domain: Domain, cell: Cell, cards: int, reach: _Reach) -> list[int]:
        free = [leaf for leaf in domain.chain.leaves(*cell) if domain.is_free(leaf)]
        return free if len(free) == cards else self._closest(domain, cell, cards, reach)

    def _find_clean(self, reach: _Reach, level: int) -> int | None:
        """A clean cell of a level on nodes that may be used: an idle one, else of the smallest that is large enough."""
        smallest = None
        for found in self._clean_cells(reach, level):
            if not reach.chain.visitors[level][found]:
                return found
            smallest = found if smallest is None else smallest
        return smallest

    def _clean_cells(self, reach: _Reach, level: int) -> Iterator[int]:
        """A cell of a level in clean ones of each size, from the smallest up, that leaves what is owed a place."""
        chain, passed_over = reach.chain, False
        for at in range(level, chain.top + 1):
            if not chain.clean[at]:
                continue
            open_cells = (cell for cell in reach.in_order(at, chain.clean[at]) if reach.includes_any(at, cell))
            if (number := next(open_cells, None)) is not None:
                found = self._descend(reach, at, number, level)
                if not passed_over or self.leaves_enough(chain, level, found):
                    yield found
            passed_over = True

    def _descend(self, reach: _Reach, at: int, number: int, level: int) -> int:
        """The first cell of a level in a clean one on nodes that may be used."""
        while at > level:
            fan, at = reach.chain.fans[at - 1], at - 1
            children = ((1 << fan) - 1) << number * fan
            number = next(child for child in reach.in_order(at, children) if reach.includes_any(at, child))
        return number

    def leaves_enough(self, chain: Chain, level: int, number: int) -> bool:
        """Whether as many cells as before have a place if this one is taken for one that is owed."""
        before = chain.shortage()
        chain.take(level, number)
        chain.demand[level] -= 1
        after = chain.shortage()
        chain.demand[level] += 1
        chain.give(level, number)
        return all(now <= then for now, then in zip(after, before, strict=True))

    # ---- what is owed -------------------------------------------------------------------------------------------

    def doomed(self, domain: Domain, level: int) -> int:
        """How many of a domain's cells of a level have no hardware left."""
        lack = domain.chain.shortage()[level]
        if not lack:
            return 0
        name = domain.chain.spec.name
        sharers = [
            each
            for domains in self._domains.values()
            for each in domains
            if each.chain.spec.name == name and each.unbound[level]
        ]
        sharers.sort(key=lambda each: -each.cells[level])
        doomed = dict.fromkeys(map(id, sharers), 0)
        while lack:
            for each in sharers:
                if lack and doomed[id(each)] < each.unbound[level]:
                    doomed[id(each)] += 1
                    lack -= 1
        return doomed.get(id(domain), 0)

    def may_take(self, cards: Iterable[tuple[str, int]]) -> bool:
        """Whether all that is owed would still have a place if what cannot leave took these cards. Changes nothing."""
        taken: list[tuple[Chain, int]] = []
        before = {name: chain.shortage() for name, chain in self.chains.items()}
        is_free = True
        for name, leaf in cards:
            chain = self.chains[name]
            if chain.bound_cell(leaf) is not None:
                is_free = False
                break
            chain.lose(leaf)
            taken.append((chain, leaf))
        if is_free:
            touched = {chain.spec.name: chain for chain, _ in taken}
            is_free = all(
                now <= then
                for name, chain in touched.items()
                for now, then in zip(chain.shortage(), before[name], strict=True)
            )
        for chain, leaf in taken:
            chain.regain(leaf)
        return is_free

    def spare_nodes(self, chain: Chain) -> int:
        """Nodes of a chain of which what cannot leave may take a card, as bits."""
        spare = 0
        for level in range(chain.top + 1):
            cells = chain.clean[level]
            if not cells:
                continue
            first = (cells & -cells).bit_length() - 1
            if not self.may_take([(chain.spec.name, first * chain.size[level])]):
                continue
            while cells:
                cell = (cells & -cells).bit_length() - 1
                cells &= cells - 1
                for node in chain.nodes_in(level, cell):
                    spare |= 1 << node
        return spare

    def domains_of(self, cluster: str, pin: str | None) -> list[Domain]:
        """What a cluster is owed, pinned apart; with None all of it, pinned cells first."""
        if pin is not None:
            return self._domains.get((cluster, pin), [])
        return [each for (name, _), domains in self._domains.items() if name == cluster for each in domains]
