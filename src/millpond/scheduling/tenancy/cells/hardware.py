"""The machines of a cluster as chains of cells, and the cells of queues as cells of these chains.

Cards of one pool and model on machines that are built alike are one kind. Racks are levels where a queue is owed racks:
each is cut into racks of the sizes asked for, the largest first, and what is left over are single machines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from millpond.model.hardware.devices import Device
from millpond.model.hardware.nodes import Node
from millpond.model.resources import CARD_MILLI
from millpond.model.tenancy.cells import CellCount
from millpond.model.tenancy.chains import ChainSpec, ClusterSpec, PinnedCell, left_of_pins
from millpond.model.tenancy.tenants import Queue

UNLIMITED: Final = 1 << 62
Sizes = tuple[tuple[str, int], ...]
"""Levels from the single card to the machine, each with how many cards it has."""


@dataclass(frozen=True, slots=True)
class HardwareKind:
    """A chain, and by which names people ask for its levels."""

    spec: ChainSpec
    level_of: dict[str, int]


def kinds_of(nodes: Iterable[Node], cells: Iterable[CellCount]) -> dict[str, HardwareKind]:
    """The chains of these machines that can have such cells, by name."""
    wanted = list(cells)
    sizes = sorted({cell.cards for cell in wanted if cell.cards > 1})
    racks = _nested(sorted({cell.rack_nodes for cell in wanted if cell.rack_nodes}))
    alike: dict[tuple[str, str, Sizes], list[tuple[Node, tuple[str, ...]]]] = {}
    for node in nodes:
        by_model: dict[str, list[Device]] = {}
        for device in node.devices:
            by_model.setdefault(device.model, []).append(device)
        for model, devices in by_model.items():
            devices.sort(key=lambda device: (device.socket, device.switch))
            cards = tuple(device.uuid for device in devices)
            alike.setdefault((node.pool, model, _sizes(devices, sizes)), []).append((node, cards))
    kinds: dict[str, HardwareKind] = {}
    for (pool, model, levels), machines in alike.items():
        for depth, members in _by_rack(machines, racks).items():
            kind = _kind(f"{pool}/{model}", model, levels, racks[:depth], members)
            kinds[kind.spec.name] = kind
    return kinds


def _nested(racks: list[int]) -> list[int]:
    """Sizes of racks that are made of each other, the smallest first."""
    nested: list[int] = []
    for size in racks:
        if not nested or size % nested[-1] == 0:
            nested.append(size)
    return nested


def _sizes(devices: Sequence[Device], wanted: Sequence[int]) -> Sizes:
    """The levels of a machine, as far as all of one level are alike."""
    total = len(devices)
    sizes = {1: "card"}
    switches = Counter((device.socket, device.switch) for device in devices)
    sockets = Counter(device.socket for device in devices)
    for name, counts in (("switch", switches), ("socket", sockets)):
        size = next(iter(counts.values()))
        if len(counts) > 1 and set(counts.values()) == {size}:
            sizes.setdefault(size, name)
    for size in wanted:
        below, above = (
            max(each for each in sizes if each <= size),
            min([each for each in sizes if each > size] + [total]),
        )
        if below < size < total and size % below == 0 and above % size == 0:
            sizes[size] = f"{size} cards"
    levels = tuple((sizes[size], size) for size in sorted(sizes) if size < total or size == 1)
    return (*levels, ("node", total))


def _by_rack(
    machines: Sequence[tuple[Node, tuple[str, ...]]], racks: Sequence[int]
) -> dict[int, list[tuple[str, tuple[str, ...]]]]:
    """Machines by how many levels of racks they are in, those of a rack one after another."""
    in_rack: dict[tuple[str, str], list[tuple[str, tuple[str, ...]]]] = {}
    found: dict[int, list[tuple[str, tuple[str, ...]]]] = {}
    for node, cards in machines:
        if node.rack_name and racks:
            in_rack.setdefault((node.zone_name, node.rack_name), []).append((node.name, cards))
        else:
            found.setdefault(0, []).append((node.name, cards))
    for members in in_rack.values():
        start = 0
        for depth in range(len(racks), -1, -1):
            size = racks[depth - 1] if depth else 1
            stop = start + (len(members) - start) // size * size
            if stop > start:
                found.setdefault(depth, []).extend(members[start:stop])
            start = stop
    return found


def _kind(
    name: str, model: str, levels: Sizes, racks: Sequence[int], machines: list[tuple[str, tuple[str, ...]]]
) -> HardwareKind:
    names, sizes = [level for level, _ in levels], [size for _, size in levels]
    node_level = len(levels) - 1
    for nodes in racks:
        names.append(f"rack of {nodes} nodes")
        sizes.append(nodes * levels[-1][1])
    fans = tuple(above // below for below, above in pairwise(sizes))
    label = f"{name} by " + ", ".join(f"{level} ({size})" for level, size in zip(names, sizes, strict=True))
    level_of = {f"{size} cards": level for level, size in enumerate(sizes[: node_level + 1])}
    level_of.update((level_name, level) for level, level_name in enumerate(names))
    return HardwareKind(ChainSpec(label, model, tuple(names), fans, node_level, tuple(machines)), level_of)


class _CardsOfModels:
    """How many cards of each model a queue may be owed as cells, where guarantees name models.

    Models that no guarantee names share what its own is not of a single model.
    """

    def __init__(self, queue: Queue, named: Collection[str]) -> None:
        self._is_bound = bool(named)
        self._named = dict.fromkeys(named, 0) | dict(queue.guarantee.models)
        self._others_milli = queue.guarantee.gpu_milli - sum(milli for _, milli in queue.guarantee.models)

    def room(self, model: str, cards: int) -> int:
        """How many cells of so many cards of a model it may have more."""
        left_milli = self._named.get(model, self._others_milli)
        return max(left_milli, 0) // (CARD_MILLI * cards) if self._is_bound else UNLIMITED

    def take(self, model: str, cards: int) -> None:
        if model in self._named:
            self._named[model] -= CARD_MILLI * cards
        else:
            self._others_milli -= CARD_MILLI * cards


class Assignment:
    """Which cells of which chains queues are owed: those of a queue out of the nearest one's above that has any.

    Where guarantees name models of cards, cells are of such cards as the guarantee of their queue covers.

    Attributes:
        missing: by queue, what there is no hardware for.
    """

    def __init__(self, kinds: dict[str, HardwareKind], queues: Sequence[Queue]) -> None:
        """``queues``: each after its parent."""
        self._kinds = kinds
        self._order = sorted(kinds, key=lambda name: (len(kinds[name].spec.levels), name))
        self.missing: dict[str, list[CellCount]] = {}
        self._owed: dict[str, dict[str, list[int]]] = {}
        self._pins: dict[str, list[PinnedCell]] = {}
        self._above: dict[str, str] = {}
        named = {model for queue in queues for model, _ in queue.guarantee.models}
        self._cards = {queue.name: _CardsOfModels(queue, named) for queue in queues}
        for queue in queues:
            above = self._above.get(queue.parent, "")
            self._above[queue.name] = queue.name if queue.cells or queue.pinned else above
            self._pin(queue)
        pins = [pin for pins in self._pins.values() for pin in pins]
        self._left = {
            name: left_of_pins(kind.spec, [p for p in pins if p.chain == name]) for name, kind in kinds.items()
        }
        self._demand = {name: [0] * len(kind.spec.levels) for name, kind in kinds.items()}
        asking = [queue for queue in queues if queue.cells]
        roots = [queue for queue in asking if not self._above.get(queue.parent)]
        asked = [(queue, cell) for queue in roots for cell in queue.cells]
        for queue, cell in sorted(asked, key=lambda pair: -self._size(pair[1])):
            self._note(queue, cell, self._from_hardware(queue.name, cell))
        for queue in asking:
            if queue not in roots:
                for cell in sorted(queue.cells, key=self._size, reverse=True):
                    self._note(queue, cell, self._from_above(queue.name, self._above[queue.parent], cell))

    @property
    def clusters(self) -> list[ClusterSpec]:
        """What each queue with cells is owed, beside those below it."""
        return [
            ClusterSpec(
                name,
                {
                    chain: {self._kinds[chain].spec.levels[level]: count for level, count in enumerate(counts) if count}
                    for chain, counts in self._owed.get(name, {}).items()
                },
                tuple(self._pins.get(name, ())),
            )
            for name in dict.fromkeys((*self._owed, *self._pins))
        ]

    def _size(self, cell: CellCount) -> int:
        """Cards of the largest such cell."""
        return max(
            (
                kind.spec.sizes[kind.level_of[cell.level]]
                for kind in self._kinds.values()
                if cell.level in kind.level_of
            ),
            default=0,
        )

    def _note(self, queue: Queue, cell: CellCount, lacking: int) -> None:
        if lacking:
            self.missing.setdefault(queue.name, []).append(CellCount(cell.level, lacking))

    def _pin(self, queue: Queue) -> None:
        for name in queue.pinned:
            found = False
            for chain, kind in self._kinds.items():
                for number, (node, cards) in enumerate(kind.spec.nodes):
                    if node == name and self._cards[queue.name].room(kind.spec.model, len(cards)):
                        self._cards[queue.name].take(kind.spec.model, len(cards))
                        pin = PinnedCell(name, chain, kind.spec.levels[kind.spec.node_level], number)
                        self._pins.setdefault(queue.name, []).append(pin)
                        found = True
            if not found:
                self.missing.setdefault(queue.name, []).append(CellCount("node", 1))

    def _from_hardware(self, queue: str, cell: CellCount) -> int:
        """Owe a queue as many such cells as there are; how many are lacking."""
        lacking = cell.count
        for name in self._order:
            level = self._kinds[name].level_of.get(cell.level)
            if level is None or not lacking:
                continue
            cards, size = self._cards[queue], self._kinds[name].spec.sizes[level]
            low, high = 0, min(lacking, cards.room(self._kinds[name].spec.model, size))
            while low < high:
                middle = (low + high + 1) // 2
                low, high = (middle, high) if self._fits(name, level, middle) else (low, middle - 1)
            cards.take(self._kinds[name].spec.model, low * size)
            self._demand[name][level] += low
            self._of(queue, name)[level] += low
            lacking -= low
        return lacking

    def _fits(self, name: str, level: int, more: int) -> bool:
        fans, count = self._kinds[name].spec.fans, 0
        for at in range(len(fans), -1, -1):
            count = self._left[name][at] + (count * fans[at] if at < len(fans) else 0) - self._demand[name][at]
            if at == level:
                count -= more
            if count < 0:
                return False
        return True

    def _from_above(self, queue: str, above: str, cell: CellCount) -> int:
        """Take cells of the queue above, splitting its larger ones; how many are lacking."""
        lacking = cell.count
        for name in self._order:
            level, owed = self._kinds[name].level_of.get(cell.level), self._owed.get(above, {}).get(name)
            if level is None or owed is None:
                continue
            fans, cards = self._kinds[name].spec.fans, self._cards[queue]
            model, size = self._kinds[name].spec.model, self._kinds[name].spec.sizes[level]
            while lacking and cards.room(model, size):
                at = next((each for each in range(level, len(owed)) if owed[each]), None)
                if at is None:
                    break
                owed[at] -= 1
                for below in range(level, at):
                    owed[below] += fans[below] - 1
                self._of(queue, name)[level] += 1
                cards.take(model, size)
                lacking -= 1
        return lacking

    def _of(self, queue: str, chain: str) -> list[int]:
        return self._owed.setdefault(queue, {}).setdefault(chain, [0] * len(self._kinds[chain].spec.levels))
