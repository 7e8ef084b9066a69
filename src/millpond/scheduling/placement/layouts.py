"""Laying a gang of several roles out when no order of its roles works greedily: a search that takes back choices.

The search runs on a small copy of the nodes that matter. It tries the shape with the fewest places first, the node and
the device that are of least use to the other shapes first, and one of several that are alike. It is complete as long as
its steps last, which they do for gangs of a few tasks; they are counted, so that a cycle has its bound.

Source: depth-first search with the most constrained variable and the least constraining value first, as in Russell and
Norvig, "Artificial Intelligence: A Modern Approach", chapter on constraint satisfaction problems.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from millpond.scheduling.placement.arrays import (
    COMPUTE_FREE,
    CPU_FREE,
    DEVICE_MEMORY,
    DEVICE_MEMORY_FREE,
    DEVICE_MODEL,
    DEVICE_TOTAL,
    DEVICE_USABLE,
    FIRST_DEVICE,
    FIRST_EXTRA,
    LIMIT_FREE,
    MEMORY_FREE,
    POOL,
    ClusterArrays,
    Int64Array,
)
from millpond.scheduling.placement.kernels import KernelSet
from millpond.scheduling.placement.selector import bits_of
from millpond.scheduling.placement.shapes import Shape

STEPS = 500
"""Places tried for one gang, over all sets of nodes."""

MOST_MEMBERS = 200
"""Larger gangs are not searched for: the search is as deep as the gang has members."""

_DEVICE_STATE = (COMPUTE_FREE, LIMIT_FREE, DEVICE_MEMORY_FREE, DEVICE_MEMORY, DEVICE_MODEL, DEVICE_USABLE)

Layout = list[tuple[int, tuple[int, ...]]]
"""For each member its node and its devices, by index on the node."""


@dataclass(slots=True)
class SearchBudget:
    """Steps left to a search, or to several that share them."""

    left: int = STEPS

    def take(self) -> bool:
        """Use one; False when there is none left."""
        self.left -= 1
        return self.left >= 0


class NodeKinds:
    """Which nodes are alike to every gang: equal in what is free of them and of their devices, whatever their place.

    Attributes:
        of: (nodes,), number of the kind; -1 for nodes on which no member of the gang has room.
    """

    def __init__(self, arrays: ClusterArrays, candidates: Int64Array) -> None:
        self.of: Int64Array = np.full(arrays.node_count, -1, dtype=np.int64)
        numbers: dict[tuple[object, ...], int] = {}
        nodes, devices = arrays.node_table, arrays.device_table[list(_DEVICE_STATE)]
        for node in candidates.tolist():
            first, total = int(nodes[FIRST_DEVICE, node]), int(nodes[DEVICE_TOTAL, node])
            own = sorted(zip(*devices[:, first : first + total].tolist(), strict=True))
            state = (
                int(nodes[CPU_FREE, node]),
                int(nodes[MEMORY_FREE, node]),
                int(nodes[POOL, node]),
                tuple(nodes[FIRST_EXTRA:, node].tolist()),
                tuple(own),
            )
            self.of[node] = numbers.setdefault(state, len(numbers))

    def signature(self, chosen: Int64Array) -> bytes:
        """Equal for sets of nodes that are alike for every gang."""
        kinds = self.of[chosen]
        return np.bincount(kinds[kinds >= 0]).tobytes()


@dataclass(slots=True)
class LayoutSearch:
    """A search on one set of nodes. Which of several equal cards a task gets is not judged by their links.

    Attributes:
        members: shapes, those with the fewest places first, equal ones together.
        chosen: the nodes, those of least use to the other shapes first.
        kinds: their kinds, in the same order.
    """

    kernels: KernelSet
    members: Sequence[Shape]
    chosen: Sequence[int]
    kinds: Sequence[int]
    steps: SearchBudget
    nodes: Int64Array = field(init=False)
    devices: Int64Array = field(init=False)
    vectors: dict[Shape, Int64Array] = field(init=False)
    shapes_of_model: dict[int, int] = field(init=False)
    held: Counter[int] = field(default_factory=Counter)
    taken: Layout = field(default_factory=list)
    hopeless: set[tuple[object, ...]] = field(default_factory=set)

    def run(self, arrays: ClusterArrays) -> Layout | None:
        """A layout of all members on the chosen nodes; None if there is none, or the steps do not last."""
        self._copy(arrays)
        if not self._place(0):
            return None
        return [(self.chosen[place], devices) for place, devices in self.taken]

    def _copy(self, arrays: ClusterArrays) -> None:
        self.nodes = arrays.node_table[:, list(self.chosen)]
        firsts, totals = self.nodes[FIRST_DEVICE].tolist(), self.nodes[DEVICE_TOTAL].tolist()
        owned = [device for first, total in zip(firsts, totals, strict=True) for device in range(first, first + total)]
        self.devices = arrays.device_table[:, owned]
        self.nodes[FIRST_DEVICE] = np.cumsum([0, *totals])[:-1]
        shapes = dict.fromkeys(self.members)
        self.vectors = {shape: shape.vector(arrays.extras) for shape in shapes}
        models = np.unique(self.devices[DEVICE_MODEL]).tolist()
        self.shapes_of_model = {model: sum(shape.model_mask >> model & 1 for shape in shapes) for model in models}

    def _place(self, index: int) -> bool:
        if index == len(self.members):
            return True
        state = self._state(index)
        if state in self.hopeless:
            return False
        shape = self.members[index]
        fresh: set[int] = set()
        for place, kind in enumerate(self.kinds):
            if self.held[place] == 0:
                if kind in fresh:
                    continue
                fresh.add(kind)
            for devices in self._choices(place, shape):
                if not self.steps.take():
                    return False
                self._shift(place, shape, devices, 1)
                self.taken.append((place, devices))
                if self._place(index + 1):
                    return True
                self.taken.pop()
                self._shift(place, shape, devices, -1)
        self.hopeless.add(state)
        return False

    def _state(self, index: int) -> tuple[object, ...]:
        """What the search beyond this member depends on."""
        touched = [place for place, count in self.held.items() if count]
        parts = []
        for place in touched:
            first, total = int(self.nodes[FIRST_DEVICE, place]), int(self.nodes[DEVICE_TOTAL, place])
            parts.append(
                (self.kinds[place], self.nodes[:, place].tobytes(), self.devices[:, first : first + total].tobytes())
            )
        return (index, *sorted((place, *part) for place, part in zip(touched, parts, strict=True)))

    def _choices(self, place: int, shape: Shape) -> Iterator[tuple[int, ...]]:
        """Sets of devices to try on a node, one of several that are alike, those of least use to others first."""
        vector = self.vectors[shape]
        if self.kernels.call("host_failure")(self.nodes, place, vector) != 0:
            return
        if shape.devices == 0:
            yield ()
            return
        first = int(self.nodes[FIRST_DEVICE, place])
        fitting = bits_of(int(self.kernels.call("fitting_devices")(self.nodes, self.devices, place, vector)))
        alike: dict[tuple[int, ...], list[int]] = {}
        for device in fitting:
            state = self.devices[list(_DEVICE_STATE), first + device].tolist()
            use = self.shapes_of_model[state[4]]
            alike.setdefault((use, *state), []).append(device)
        groups = [alike[key] for key in sorted(alike)]
        yield from _picks(groups, shape.devices)

    def _shift(self, place: int, shape: Shape, devices: tuple[int, ...], sign: int) -> None:
        self.held[place] += sign
        self.nodes[CPU_FREE, place] -= sign * shape.cpu_milli
        self.nodes[MEMORY_FREE, place] -= sign * shape.memory_mib
        for extra, amount in enumerate(shape.extras):
            self.nodes[FIRST_EXTRA + extra, place] -= sign * amount
        first = int(self.nodes[FIRST_DEVICE, place])
        for device in devices:
            column = first + device
            self.devices[COMPUTE_FREE, column] -= sign * shape.compute_milli
            self.devices[LIMIT_FREE, column] -= sign * shape.limit_milli
            capacity = int(self.devices[DEVICE_MEMORY, column])
            self.devices[DEVICE_MEMORY_FREE, column] -= sign * shape.memory_on(capacity)


def _picks(groups: list[list[int]], wanted: int) -> Iterator[tuple[int, ...]]:
    """Ways to take ``wanted`` of groups of equals, as many as possible of the earlier groups first."""
    if wanted == 0:
        yield ()
        return
    if not groups:
        return
    for count in range(min(wanted, len(groups[0])), -1, -1):
        for rest in _picks(groups[1:], wanted - count):
            yield tuple(sorted((*groups[0][:count], *rest)))
