"""Gangs: tasks that start together or not at all.

Members are placed largest first against the live state, through the caller's transaction, and rolled back if one
does not fit. A gang of whole nodes goes to the tightest single rack that holds it, else to as few racks as
possible, largest first; any other gang is packed by score, within the requested level first. Where several zones are
known, what no rack holds goes to the tightest single zone before it is spread over all.

Where members differ, the order in which they are placed decides whether all fit. If largest first does not work, other
orders are tried, the shape with the fewest nodes first, and in the end a search that takes back choices (``layouts``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, permutations

import numpy as np
from numpy.typing import NDArray

from millpond.model.hardware.topology import Level
from millpond.scheduling.placement.arrays import CPU_FREE, FIRST_EXTRA, MEMORY_FREE, Int64Array, NodeMask
from millpond.scheduling.placement.layouts import MOST_MEMBERS, Layout, LayoutSearch, NodeKinds, SearchBudget
from millpond.scheduling.placement.selector import Choice, Selector
from millpond.scheduling.placement.shapes import Shape
from millpond.scheduling.placement.spaced_gangs import SpacedMembers, Transaction, place_spaced

# Sets of nodes tried per level before the level is given up; counts work, not time.
TRIES_PER_LEVEL = 256

# Orders of the shapes tried on one set of nodes, and on all of them beyond the first each.
MOST_ORDERS = 6
MORE_ORDERS = 60


@dataclass(frozen=True, slots=True)
class GangPlacement:
    """Choices in the order of the members asked for, and the level that was kept."""

    choices: tuple[Choice, ...]
    level: Level


@dataclass(slots=True)
class _Request:
    """A gang in placing order (largest first), with its limits and the work that may still go into it.

    Attributes:
        base: the nodes that it may have, (nodes,).
        counts: members of each shape, largest shape first.
        room: how many of each shape every node could hold by itself, (nodes,).
        spaced: what the members must keep between them; None: nothing.
    """

    members: tuple[Shape, ...]
    base: NodeMask
    counts: dict[Shape, int]
    room: dict[Shape, Int64Array]
    spaced: SpacedMembers | None = None
    more_orders: int = MORE_ORDERS
    steps: SearchBudget = field(default_factory=SearchBudget)
    kinds: NodeKinds | None = None
    failed: set[bytes] = field(default_factory=set)

    @property
    def alike(self) -> bool:
        """Whether all members are of one shape, so that counting says whether they fit."""
        return len(self.counts) == 1

    def useful(self) -> NDArray[np.bool_]:
        """Nodes that have room for a member of some shape."""
        useful: NDArray[np.bool_] = np.logical_or.reduce([room > 0 for room in self.room.values()])
        return useful

    def within(self, chosen: NDArray[np.bool_]) -> _Request:
        """The same on the chosen nodes alone."""
        room = {shape: amounts * chosen for shape, amounts in self.room.items()}
        return replace(self, base=_only(self.base, chosen), room=room)

    def may_fit(self, chosen: NDArray[np.bool_]) -> bool:
        """Whether each shape, were it alone, has room for its members on the chosen nodes."""
        return all(int(self.room[shape][chosen].sum()) >= count for shape, count in self.counts.items())


def place_gang(
    selector: Selector,
    members: Sequence[Shape],
    transaction: Transaction,
    *,
    level: Level = Level.CLUSTER,
    required: bool = False,
    node_mask: NodeMask | None = None,
    spaced: SpacedMembers | None = None,
) -> GangPlacement | None:
    """Place all ``members`` through ``transaction``, or none: then it is rolled back and None is returned.

    ``level`` is a preference, or with ``required`` a condition; where a preference cannot be met the next level out is
    tried. ``node_mask`` is as in ``Selector.place``. ``spaced`` says what the members must keep between them.

    Members of one shape are placed whenever they fit. Members of several shapes are where one of the orders does it or
    the search's steps last.
    """
    count = selector.arrays.node_count
    order = sorted(range(len(members)), key=lambda index: _largest_first(members[index]))
    base = np.ones(count, dtype=np.uint8) if node_mask is None else node_mask[:count]
    largest_first = tuple(members[index] for index in order)
    counts = dict(Counter(largest_first))
    room = {shape: selector.member_room(shape, base) for shape in counts}
    request = _Request(largest_first, base, counts, room, None if spaced is None else spaced.in_order(order))
    if not request.may_fit(base != 0):
        return None
    for kept in [level] if required else _levels(selector, request, level):
        for mask in islice(_masks(selector, request, kept, spread=level >= Level.ZONE), TRIES_PER_LEVEL):
            choices = _place_somehow(selector, request, transaction, mask)
            if choices is not None:
                by_member = sorted(zip(order, choices, strict=True))
                return GangPlacement(tuple(choice for _, choice in by_member), kept)
    return None


def _largest_first(shape: Shape) -> tuple[int, int, int, int]:
    return (-shape.devices, -shape.total_compute_milli, -shape.cpu_milli, -shape.memory_mib)


# ---- on one set of nodes ----------------------------------------------------------------------------------------


def _place_somehow(
    selector: Selector, request: _Request, transaction: Transaction, mask: NodeMask
) -> list[Choice] | None:
    """Choices for all members, largest first, by the first way that works; None, and nothing taken, if none does."""
    if request.spaced is not None:
        return place_spaced(selector, request.members, request.spaced, transaction, mask)
    choices = _place_all(selector, transaction, mask, request.members)
    if choices is not None or request.alike:
        return choices
    chosen = (mask != 0) & request.useful()
    if not request.may_fit(chosen) or not _suffices(selector, request, chosen):
        return None
    if request.kinds is None:
        request.kinds = NodeKinds(selector.arrays, np.flatnonzero(request.useful()))
    signature = request.kinds.signature(np.flatnonzero(chosen))
    if signature in request.failed:
        return None
    for shapes in _orders(request, chosen):
        members = [shape for shape in shapes for _ in range(request.counts[shape])]
        choices = _place_all(selector, transaction, mask, members)
        if choices is not None:
            return _in_order(request.members, members, choices)
    if len(request.members) <= MOST_MEMBERS and request.steps.left > 0:
        members, layout = _search(selector, request, request.kinds, chosen)
        if layout is not None:
            for shape, (node, devices) in zip(members, layout, strict=True):
                transaction.apply(node, shape, devices)
            return _in_order(request.members, members, [Choice(node, 0, devices) for node, devices in layout])
    request.failed.add(signature)
    return None


def _suffices(selector: Selector, request: _Request, chosen: NDArray[np.bool_]) -> bool:
    """Whether the chosen nodes have enough of everything in sum."""
    arrays = selector.arrays
    free = arrays.node_table[:, : arrays.node_count][:, chosen]
    asked = [0] * arrays.extras
    for shape in request.members:
        for extra, amount in enumerate(shape.extras):
            asked[extra] += amount
    return (
        int(free[CPU_FREE].sum()) >= sum(shape.cpu_milli for shape in request.members)
        and int(free[MEMORY_FREE].sum()) >= sum(shape.memory_mib for shape in request.members)
        and int(selector.free_compute()[chosen].sum()) >= sum(shape.total_compute_milli for shape in request.members)
        and bool((free[FIRST_EXTRA:].sum(axis=1) >= asked).all())
    )


def _place_all(
    selector: Selector, transaction: Transaction, mask: NodeMask, members: Sequence[Shape]
) -> list[Choice] | None:
    choices: list[Choice] = []
    for shape in members:
        choice = selector.place(shape, mask)
        if choice is None:
            transaction.rollback()
            return None
        transaction.apply(choice.node, shape, choice.devices)
        choices.append(choice)
    return choices


def _orders(request: _Request, chosen: NDArray[np.bool_]) -> Iterator[tuple[Shape, ...]]:
    """Orders of the shapes other than largest first; the one with the fewest nodes first goes first."""
    largest_first = tuple(request.counts)
    scarcest_first = _scarcest_first(request, chosen)
    tried = {largest_first}
    for order in islice((scarcest_first, *islice(permutations(largest_first), 2 * MOST_ORDERS)), MOST_ORDERS + 2):
        if order not in tried and request.more_orders > 0:
            request.more_orders -= 1
            tried.add(order)
            yield order


def _scarcest_first(request: _Request, chosen: NDArray[np.bool_]) -> tuple[Shape, ...]:
    nodes = {shape: int(np.count_nonzero(room[chosen])) for shape, room in request.room.items()}
    return tuple(sorted(request.counts, key=lambda shape: (nodes[shape], _largest_first(shape))))


def _search(
    selector: Selector, request: _Request, kinds: NodeKinds, chosen: NDArray[np.bool_]
) -> tuple[list[Shape], Layout | None]:
    """Members in the order of the search, and where each goes; None if no layout was found."""
    members = [shape for shape in _scarcest_first(request, chosen) for _ in range(request.counts[shape])]
    use = np.sum([room > 0 for room in request.room.values()], axis=0)
    free = selector.free_compute()
    nodes: list[int] = []
    of_kind: Counter[int] = Counter()
    for node in sorted(np.flatnonzero(chosen & (use > 0)).tolist(), key=lambda node: (use[node], free[node], node)):
        kind = int(kinds.of[node])
        if of_kind[kind] < len(members):  # more of one kind than there are members are of no use
            of_kind[kind] += 1
            nodes.append(node)
    search = LayoutSearch(selector.kernels, members, nodes, [int(kinds.of[node]) for node in nodes], request.steps)
    return members, search.run(selector.arrays)


def _in_order(wanted: Sequence[Shape], placed: Sequence[Shape], choices: Sequence[Choice]) -> list[Choice]:
    """Choices that were found in one order of the members, in another."""
    by_shape: dict[Shape, list[Choice]] = {}
    for shape, choice in zip(placed, choices, strict=True):
        by_shape.setdefault(shape, []).append(choice)
    for found in by_shape.values():
        found.reverse()
    return [by_shape[shape].pop() for shape in wanted]


# ---- which sets of nodes ----------------------------------------------------------------------------------------


def _levels(selector: Selector, request: _Request, preferred: Level) -> list[Level]:
    """The levels to try a gang at, from the preferred one out; no two of which stand for the same nodes."""
    levels = [Level.NODE, Level.RACK, Level.ZONE, Level.CLUSTER][preferred - Level.NODE :]
    zones = selector.arrays.zone[: selector.arrays.node_count][request.base != 0]
    if Level.ZONE in levels and len(zones) and (zones == zones[0]).all():
        levels.remove(Level.CLUSTER)
    return levels


def _masks(selector: Selector, request: _Request, level: Level, *, spread: bool) -> Iterator[NodeMask]:
    """Sets of nodes to try the gang on at ``level``, best first. ``spread``: no closeness was requested."""
    racks = selector.arrays.rack[: selector.arrays.node_count]
    if level is Level.NODE:
        yield from _single_nodes(selector, request)
    elif level is Level.RACK:
        for rack in _places_by_room(selector, request, racks):
            yield _only(request.base, racks == rack)
    elif level is Level.ZONE:
        zones = selector.arrays.zone[: selector.arrays.node_count]
        for zone in _places_by_room(selector, request, zones):
            yield from _masks(selector, request.within(zones == zone), Level.CLUSTER, spread=spread)
    else:
        if not spread or _takes_whole_nodes(selector, request):
            yield from _rack_sets(selector, request)
        yield request.base


def _single_nodes(selector: Selector, request: _Request) -> Iterator[NodeMask]:
    """Nodes with room in sum for the whole gang, those with the least free compute first."""
    arrays, members = selector.arrays, request.members
    count = arrays.node_count
    free = selector.free_compute()
    able = (
        (arrays.cpu_free_milli[:count] >= sum(shape.cpu_milli for shape in members))
        & (arrays.memory_free_mib[:count] >= sum(shape.memory_mib for shape in members))
        & (free >= sum(shape.total_compute_milli for shape in members))
    )
    for shape, wanted in request.counts.items():
        able &= request.room[shape] >= wanted
    candidates = np.flatnonzero(able)
    for node in candidates[np.argsort(free[candidates], kind="stable")]:
        yield _only(request.base, np.arange(count) == node)


def _places_by_room(selector: Selector, request: _Request, places: Int64Array) -> list[int]:
    """Racks or zones that may hold the gang, tightest first: by room for the largest member, then by free compute.

    Args:
        places: (nodes,) the number of the one that each node is in.
    """
    held = by_place(places, request.room[request.members[0]])
    free = by_place(places, selector.free_compute() * (request.base != 0))
    able = free >= sum(shape.total_compute_milli for shape in request.members)
    for shape, wanted in request.counts.items():
        able &= by_place(places, request.room[shape]) >= wanted
    return sorted(np.flatnonzero(able).tolist(), key=lambda place: (held[place], free[place], place))


def _rack_sets(selector: Selector, request: _Request) -> Iterator[NodeMask]:
    """The tightest single rack; else the fewest racks: the largest ones, the last as tight as it may be."""
    racks = selector.arrays.rack[: selector.arrays.node_count]
    single = _places_by_room(selector, request, racks)
    if single:
        yield _only(request.base, racks == single[0])
    held = by_place(racks, request.room[request.members[0]])
    largest_first = sorted(np.flatnonzero(held).tolist(), key=lambda rack: (-held[rack], rack))
    chosen: list[int] = []
    missing = len(request.members)
    for place, rack in enumerate(largest_first):
        completing = [other for other in largest_first[place:] if held[other] >= missing]
        chosen.append(min(completing, key=lambda other: (held[other], other)) if completing else rack)
        missing -= int(held[chosen[-1]])
        if missing <= 0:
            yield _only(request.base, np.isin(racks, chosen))
            return


def _takes_whole_nodes(selector: Selector, request: _Request) -> bool:
    """Whether every member takes all devices of any node that can hold it."""
    members = request.counts
    fitting = np.flatnonzero(request.room[request.members[0]])
    totals = selector.arrays.device_total[fitting]
    return bool(len(fitting)) and all(shape.whole_cards and bool((totals <= shape.devices).all()) for shape in members)


def by_place(places: Int64Array, amounts: Int64Array) -> Int64Array:
    """Sums of amounts, (nodes,), by number of the rack or zone."""
    sums = np.zeros(int(places.max(initial=0)) + 1, dtype=np.int64)
    np.add.at(sums, places, amounts)
    return sums


def _only(base: NodeMask, chosen: NDArray[np.bool_]) -> NodeMask:
    return (base * chosen).astype(np.uint8)
