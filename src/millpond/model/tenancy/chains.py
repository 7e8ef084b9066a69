"""Cells: parts of the hardware that are owed whole, such as a machine or a socket, and whether all that are owed fit.

A chain is hardware of one kind as a tree in which all cells of a level are alike. A virtual cluster is what one tenant
is owed of the chains.

Source: Zhao et al., "HiveD: Sharing a GPU Cluster for Deep Learning with Guarantees", OSDI 2020, sections 3.1 and 3.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millpond.model.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class ChainSpec:
    """What a chain is made of.

    Attributes:
        name: of its kind; chains are tried in falling order of their names.
        model: of all its cards.
        levels: names of its levels, from the single card up.
        fans: of each level but the last, how many of its cells make one of the next.
        node_level: which level is one machine.
        nodes: names of its machines, with the ids of their cards, in the order of the tree.
    """

    name: str
    model: str
    levels: tuple[str, ...]
    fans: tuple[int, ...]
    node_level: int
    nodes: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def sizes(self) -> list[int]:
        """Cards of one cell, by level."""
        sizes = [1]
        for fan in self.fans:
            sizes.append(sizes[-1] * fan)
        return sizes


@dataclass(frozen=True, slots=True)
class PinnedCell:
    """A certain cell of the hardware, by the number it has on its level of a chain."""

    name: str
    chain: str
    level: str
    cell: int


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """A virtual cluster: what one tenant is owed.

    Attributes:
        cells: by chain and then by level, how many cells.
        pinned: certain ones beside these.
    """

    name: str
    cells: Mapping[str, Mapping[str, int]]
    pinned: tuple[PinnedCell, ...] = ()


def require_fit(chains: Mapping[str, ChainSpec], clusters: Sequence[ClusterSpec]) -> None:
    """Raise InvalidInputError if cells do not exist, are pinned twice, or are more than there is at some level."""
    owed: dict[str, dict[str, int]] = {}
    pinned: dict[str, list[PinnedCell]] = {}
    for cluster in clusters:
        for name, cells in cluster.cells.items():
            for level, count in cells.items():
                _require_level(cluster.name, chains, name, level)
                if count < 0:
                    raise InvalidInputError(
                        f"{cluster.name} is owed {count} cells {level}", "a count of cells is 0 or more"
                    )
                by_level = owed.setdefault(name, {})
                by_level[level] = by_level.get(level, 0) + count
        for pin in cluster.pinned:
            _require_level(cluster.name, chains, pin.chain, pin.level)
            pinned.setdefault(pin.chain, []).append(pin)
    for name in {**owed, **pinned}:
        _require_fit_in(chains[name], owed.get(name, {}), pinned.get(name, []))


def _require_level(cluster: str, chains: Mapping[str, ChainSpec], name: str, level: str) -> None:
    if name not in chains:
        raise InvalidInputError(
            f"{cluster} is owed cells of {name}, and there is no such hardware",
            f"there are {', '.join(sorted(chains)) or 'none'}",
        )
    if level not in chains[name].levels:
        raise InvalidInputError(
            f"{cluster} is owed cells {level} of {name}, which has no such level",
            f"its levels are {', '.join(chains[name].levels)}",
        )


def _require_fit_in(spec: ChainSpec, owed: Mapping[str, int], pinned: Sequence[PinnedCell]) -> None:
    left, count = left_of_pins(spec, pinned), 0
    for level in range(len(spec.levels) - 1, -1, -1):
        name = spec.levels[level]
        wanted = owed.get(name, 0)
        count = left[level] + (count * spec.fans[level] if level < len(spec.fans) else 0)
        if wanted > count:
            raise InvalidInputError(
                f"all tenants together are owed {wanted} cells {name} of {spec.name}, and {count} are left beside "
                "pinned and larger ones",
                f"take away {wanted - count} of them, or add hardware",
            )
        count -= wanted


def left_of_pins(spec: ChainSpec, pinned: Sequence[PinnedCell]) -> list[int]:
    """By level, how many of the largest cells without any pinned one there are."""
    sizes, top = spec.sizes, len(spec.levels) - 1
    cards = len(spec.nodes) * sizes[spec.node_level]
    whole = [set[int]() for _ in sizes]
    split = [set[int]() for _ in sizes]
    for pin in pinned:
        level, first = spec.levels.index(pin.level), pin.cell * sizes[spec.levels.index(pin.level)]
        if not 0 <= first < cards:
            raise InvalidInputError(f"the pinned cell {pin.name} does not exist", "pin a cell of the hardware")
        around = {(at, first // sizes[at]) for at in range(level, top + 1)}
        if pin.cell in split[level] or any(cell in whole[at] for at, cell in around):
            raise InvalidInputError(
                f"the pinned cell {pin.name} lies in another one or holds one", "pin each cell for one tenant"
            )
        whole[level].add(pin.cell)
        for at, cell in around:
            if at > level:
                split[at].add(cell)
    left = [0] * len(sizes)
    left[top] = cards // sizes[top] - len(split[top] | whole[top])
    for level in range(top):
        inside = len(split[level + 1]) * spec.fans[level]
        left[level] = inside - len(split[level] | whole[level])
    return left
