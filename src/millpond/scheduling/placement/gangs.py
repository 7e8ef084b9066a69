"""Gangs: tasks that start together or not at all.

Members are placed largest first against the live state, through the caller's transaction, and rolled back if one
does not fit. A gang of whole nodes goes to the tightest single rack that holds it, else to as few racks as
possible, largest first; any other gang is packed by score, within the wished-for level first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from millpond.model.topology import Level
from millpond.scheduling.placement.arrays import Int64Array, NodeMask
from millpond.scheduling.placement.selector import Choice, Selector
from millpond.scheduling.placement.shapes import Shape

# Sets of nodes tried per level before the level is given up; counts work, not time.
TRIES_PER_LEVEL = 256


class Transaction(Protocol):
    """The part of the cluster's transaction that a gang needs; ``apply`` must log the node as changed."""

    def apply(self, node: int, shape: Shape, devices: tuple[int, ...]) -> None:
        """Hold the shape on the devices (by index on the node)."""

    def rollback(self) -> None:
        """Undo every ``apply`` since the transaction began or was last rolled back."""


@dataclass(frozen=True, slots=True)
class GangPlacement:
    """Choices in the order of the members asked for, and the level that was kept."""

    choices: tuple[Choice, ...]
    level: Level


@dataclass(frozen=True, slots=True)
class _Request:
    """A gang in placing order (largest first) with its limits."""

    members: tuple[Shape, ...]
    base: NodeMask
    level_spare: Int64Array | None


def place_gang(
    selector: Selector,
    members: Sequence[Shape],
    transaction: Transaction,
    *,
    level: Level = Level.ZONE,
    required: bool = False,
    node_mask: NodeMask | None = None,
    level_spare: Int64Array | None = None,
) -> GangPlacement | None:
    """Place all ``members`` through ``transaction``, or none: then it is rolled back and None is returned.

    ``level`` is a wish, or with ``required`` a condition. ``node_mask`` and ``level_spare`` are as in
    ``Selector.place``; the spare cells are counted down as members break them.
    """
    count = selector.arrays.node_count
    order = sorted(range(len(members)), key=lambda index: _largest_first(members[index]))
    base = np.ones(count, dtype=np.uint8) if node_mask is None else node_mask[:count]
    request = _Request(tuple(members[index] for index in order), base, level_spare)
    wished = [Level.NODE, Level.RACK, Level.ZONE]
    levels = [level] if required else wished[wished.index(level) :]
    for kept in levels:
        for mask in islice(_masks(selector, request, kept, spread=level is Level.ZONE), TRIES_PER_LEVEL):
            choices = _place_all(selector, request, transaction, mask)
            if choices is not None:
                by_member = sorted(zip(order, choices, strict=True))
                return GangPlacement(tuple(choice for _, choice in by_member), kept)
    return None


def _largest_first(shape: Shape) -> tuple[int, int, int, int]:
    return (-shape.devices, -shape.total_compute_milli, -shape.cpu_milli, -shape.memory_mib)


def _place_all(selector: Selector, request: _Request, transaction: Transaction, mask: NodeMask) -> list[Choice] | None:
    spare = None if request.level_spare is None else request.level_spare.copy()
    choices: list[Choice] = []
    for shape in request.members:
        choice = selector.place(shape, mask, spare)
        if choice is None:
            transaction.rollback()
            return None
        if spare is not None:
            spare -= selector.cells_broken(choice)
        transaction.apply(choice.node, shape, choice.devices)
        choices.append(choice)
    return choices


def _masks(selector: Selector, request: _Request, level: Level, *, spread: bool) -> Iterator[NodeMask]:
    """Sets of nodes to try the gang on at ``level``, best first. ``spread``: no closeness was wished for."""
    room = selector.member_room(request.members[0], request.base)
    racks = selector.arrays.rack[: selector.arrays.node_count]
    if level is Level.NODE:
        yield from _single_nodes(selector, request, room)
    elif level is Level.RACK:
        for rack in _racks_by_room(selector, request, room):
            yield _only(request.base, racks == rack)
    else:
        if not spread or _takes_whole_nodes(selector, request.members, room):
            yield from _rack_sets(selector, request, room)
        yield request.base


def _single_nodes(selector: Selector, request: _Request, room: Int64Array) -> Iterator[NodeMask]:
    """Nodes with room in sum for the whole gang, those with the least free compute first."""
    arrays, members = selector.arrays, request.members
    count = arrays.node_count
    free = selector.free_compute()
    alike = all(shape == members[0] for shape in members)
    able = (
        (room >= (len(members) if alike else 1))
        & (arrays.cpu_free_milli[:count] >= sum(shape.cpu_milli for shape in members))
        & (arrays.memory_free_mib[:count] >= sum(shape.memory_mib for shape in members))
        & (free >= sum(shape.total_compute_milli for shape in members))
    )
    candidates = np.flatnonzero(able)
    for node in candidates[np.argsort(free[candidates], kind="stable")]:
        yield _only(request.base, np.arange(count) == node)


def _racks_by_room(selector: Selector, request: _Request, room: Int64Array) -> list[int]:
    """Racks that may hold the gang, tightest first: by room for the largest member, then by free compute."""
    arrays, members = selector.arrays, request.members
    racks = arrays.rack[: arrays.node_count]
    held = _by_rack(racks, room)
    free = _by_rack(racks, selector.free_compute() * (request.base != 0))
    largest = sum(1 for shape in members if shape == members[0])
    asked = sum(shape.total_compute_milli for shape in members)
    able = np.flatnonzero((held >= largest) & (free >= asked)).tolist()
    return sorted(able, key=lambda rack: (held[rack], free[rack], rack))


def _rack_sets(selector: Selector, request: _Request, room: Int64Array) -> Iterator[NodeMask]:
    """The tightest single rack; else the fewest racks: the largest ones, the last as tight as it may be."""
    racks = selector.arrays.rack[: selector.arrays.node_count]
    single = _racks_by_room(selector, request, room)
    if single:
        yield _only(request.base, racks == single[0])
    held = _by_rack(racks, room)
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


def _takes_whole_nodes(selector: Selector, members: Sequence[Shape], room: Int64Array) -> bool:
    """Whether every member takes all devices of any node that can hold it."""
    fitting = np.flatnonzero(room)
    totals = selector.arrays.device_total[fitting]
    return bool(len(fitting)) and all(shape.whole_cards and bool((totals <= shape.devices).all()) for shape in members)


def _by_rack(racks: Int64Array, amounts: Int64Array) -> Int64Array:
    sums = np.zeros(int(racks.max(initial=0)) + 1, dtype=np.int64)
    np.add.at(sums, racks, amounts)
    return sums


def _only(base: NodeMask, chosen: NDArray[np.bool_]) -> NodeMask:
    return (base * chosen).astype(np.uint8)
