"""HiveD's configuration format: cell types, the physical cluster, and what its virtual clusters are owed.

Source: ``pkg/api/types.go`` of github.com/microsoft/hivedscheduler (the sections ``physicalCluster`` and
``virtualClusters`` of its configuration).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from millpond.model.errors import InvalidInputError
from millpond.model.tenancy.chains import ChainSpec, ClusterSpec, PinnedCell, require_fit
from millpond.specs.errors import SpecError
from millpond.specs.source_positions import Located, Path, read_documents
from millpond.specs.validation import Strict, validate

Count = Annotated[int, Field(ge=1, le=1_000_000)]


class CellTypeFile(Strict):
    """What a type of cells consists of.

    Attributes:
        childCellType: type of its parts, down to one that has no entry: a single card.
        childCellNumber: how many parts it has.
        isNodeLevel: whether it is one machine.
    """

    childCellType: str  # noqa: N815 - the format's own names
    childCellNumber: Count  # noqa: N815
    isNodeLevel: bool = False  # noqa: N815


class PhysicalCellFile(Strict):
    """A cell of the hardware; what is left out of its parts is numbered.

    Attributes:
        cellType: needed at the top only.
        cellAddress: name of a machine, or index of a card on it.
        pinnedCellId: by which virtual clusters name it.
        cellChildren: its parts.
    """

    cellType: str = ""  # noqa: N815
    cellAddress: str | int = ""  # noqa: N815
    pinnedCellId: str = ""  # noqa: N815
    cellChildren: list[PhysicalCellFile] = Field(default=[])  # noqa: N815


class PhysicalClusterFile(Strict):
    """The hardware.

    Attributes:
        cellTypes: by name.
        physicalCells: the topmost cells.
    """

    cellTypes: dict[str, CellTypeFile]  # noqa: N815
    physicalCells: list[PhysicalCellFile]  # noqa: N815


class VirtualCellFile(Strict):
    """Cells that a virtual cluster is owed.

    Attributes:
        cellType: their type, after the types of all cells around them, with dots between.
        cellNumber: how many.
    """

    cellType: str  # noqa: N815
    cellNumber: Count  # noqa: N815


class PinnedCellFile(Strict):
    """A certain cell that a virtual cluster is owed."""

    pinnedCellId: str  # noqa: N815


class VirtualClusterFile(Strict):
    """What one tenant is owed.

    Attributes:
        virtualCells: cells of the hardware, whichever.
        pinnedCells: certain ones.
    """

    virtualCells: list[VirtualCellFile] = Field(default=[])  # noqa: N815
    pinnedCells: list[PinnedCellFile] = Field(default=[])  # noqa: N815


class HivedFile(Strict):
    """The sections of HiveD's configuration that say who is owed what.

    Attributes:
        physicalCluster: the hardware.
        virtualClusters: by name.
    """

    physicalCluster: PhysicalClusterFile  # noqa: N815
    virtualClusters: dict[str, VirtualClusterFile]  # noqa: N815


@dataclass(frozen=True, slots=True)
class HivedCluster:
    """A checked configuration: hardware by kind, and what tenants are owed of it."""

    chains: tuple[ChainSpec, ...]
    clusters: tuple[ClusterSpec, ...]


def read_hived(text: str, source: str = "") -> HivedCluster:
    """The configuration in a text.

    Raises:
        SpecError: it is wrong, or tenants are owed more than there is, with the line.
    """
    located = read_documents(text, source)[0]
    file = validate(HivedFile, located)
    hardware = _Hardware(located, file.physicalCluster)
    for number, cell in enumerate(file.physicalCluster.physicalCells):
        hardware.add(cell, ("physicalCluster", "physicalCells", number))
    chains = {name: hardware.chain(name) for name in hardware.machines}
    clusters = [
        _cluster(located, name, owed, hardware, ("virtualClusters", name))
        for name, owed in file.virtualClusters.items()
    ]
    for number, cluster in enumerate(clusters):
        try:
            require_fit(chains, clusters[: number + 1])
        except InvalidInputError as error:
            raise _fault(located, ("virtualClusters", cluster.name), error.cause, error.remedy) from error
    return HivedCluster(tuple(chains.values()), tuple(clusters))


def _fault(located: Located, path: Path, message: str, hint: str = "") -> SpecError:
    return SpecError([located.problem(path, message, hint)])


class _Hardware:
    """The physical cluster, read cell by cell.

    Attributes:
        machines: of each topmost type, its machines with their cards, in the order of the tree.
        pins: pinned cells by name, with the type of the topmost cell around them.
    """

    def __init__(self, located: Located, file: PhysicalClusterFile) -> None:
        self._located, self._types = located, file.cellTypes
        self.machines: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
        self.pins: dict[str, PinnedCell] = {}

    def levels(self, top: str, path: Path) -> list[str]:
        """The types of a chain, from the single card up."""
        levels = [top]
        while levels[-1] in self._types:
            levels.append(self._types[levels[-1]].childCellType)
            if levels[-1] in levels[:-1]:
                raise _fault(self._located, path, f"a cell {levels[-1]} is part of itself", "name a smaller type")
        levels.reverse()
        return levels

    def chain(self, top: str) -> ChainSpec:
        """What is there of a topmost type."""
        levels = self.levels(top, ())
        fans = tuple(self._types[name].childCellNumber for name in levels[1:])
        return ChainSpec(top, levels[0], tuple(levels), fans, self._node_level(levels, ()), tuple(self.machines[top]))

    def add(self, cell: PhysicalCellFile, path: Path) -> None:
        """Enter a topmost cell with its parts."""
        top = cell.cellType
        if top not in self._types:
            raise _fault(self._located, path, f"no cell type {top!r}", "name one of cellTypes")
        levels = self.levels(top, path)
        machines = self.machines.setdefault(top, [])
        before = len(machines)
        self._walk(cell, levels, len(levels) - 1, path, top)
        for name, cards in machines[before:]:
            if len(set(cards)) < len(cards):
                raise _fault(self._located, path, f"a card of machine {name} is named twice", "name each card once")

    def _node_level(self, levels: list[str], path: Path) -> int:
        marked = [level for level, name in enumerate(levels) if level and self._types[name].isNodeLevel]
        if len(marked) != 1:
            raise _fault(
                self._located, path, f"{len(marked)} of the levels of {levels[-1]} are machines", "mark one isNodeLevel"
            )
        return marked[0]

    def _walk(self, cell: PhysicalCellFile, levels: list[str], level: int, path: Path, top: str) -> None:
        node_level, machines = self._node_level(levels, path), self.machines[top]
        if level < node_level:
            raise _fault(
                self._located, path, f"{levels[level]} is less than a machine", "list machines or larger cells"
            )
        self._pin(cell, levels, level, self._size(levels, node_level, level), len(machines), top, path)
        if level == node_level:
            if not cell.cellAddress:
                raise _fault(self._located, path, f"a machine {levels[level]} without cellAddress", "name the machine")
            cards: list[str] = []
            self._cards(cell, levels, level, cards, path, top)
            machines.append((str(cell.cellAddress), tuple(f"{cell.cellAddress}/{card}" for card in cards)))
            return
        for number, child in enumerate(self._children(cell, levels, level, path)):
            self._walk(child, levels, level - 1, (*path, "cellChildren", number), top)

    def _cards(
        self, cell: PhysicalCellFile, levels: list[str], level: int, cards: list[str], path: Path, top: str
    ) -> None:
        """Collect the indices of the cards of a machine, or of a part of it."""
        if level == 0:
            cards.append(str(cell.cellAddress) if cell.cellAddress != "" else str(len(cards)))
            return
        for number, child in enumerate(self._children(cell, levels, level, path)):
            below = (*path, "cellChildren", number)
            if child.pinnedCellId:
                size = self._size(levels, 0, level - 1)
                start = len(self.machines[top]) * self._size(levels, 0, self._node_level(levels, path)) + len(cards)
                self._enter_pin(
                    child.pinnedCellId, PinnedCell(child.pinnedCellId, top, levels[level - 1], start // size), below
                )
            self._cards(child, levels, level - 1, cards, below, top)

    def _children(self, cell: PhysicalCellFile, levels: list[str], level: int, path: Path) -> list[PhysicalCellFile]:
        wanted = self._types[levels[level]].childCellNumber
        children = cell.cellChildren or [PhysicalCellFile() for _ in range(wanted)]
        if len(children) != wanted:
            raise _fault(
                self._located,
                path,
                f"a cell {levels[level]} with {len(children)} parts",
                f"it has {wanted} by its type",
            )
        return children

    def _size(self, levels: list[str], low: int, high: int) -> int:
        """How many cells of one level another one has."""
        size = 1
        for name in levels[low + 1 : high + 1]:
            size *= self._types[name].childCellNumber
        return size

    def _pin(
        self, cell: PhysicalCellFile, levels: list[str], level: int, machines: int, before: int, top: str, path: Path
    ) -> None:
        if cell.pinnedCellId:
            self._enter_pin(
                cell.pinnedCellId, PinnedCell(cell.pinnedCellId, top, levels[level], before // machines), path
            )

    def _enter_pin(self, name: str, pin: PinnedCell, path: Path) -> None:
        if name in self.pins:
            raise _fault(self._located, path, f"a second cell is pinned as {name}", "give it another name")
        self.pins[name] = pin


def _cluster(located: Located, name: str, owed: VirtualClusterFile, hardware: _Hardware, path: Path) -> ClusterSpec:
    cells: dict[str, dict[str, int]] = {}
    for number, cell in enumerate(owed.virtualCells):
        here, parts = (*path, "virtualCells", number, "cellType"), cell.cellType.split(".")
        levels = hardware.levels(parts[0], here) if parts[0] in hardware.machines else []
        if levels[::-1][: len(parts)] != parts:
            raise _fault(located, here, f"there is no hardware {cell.cellType!r}", "name a cell after those around it")
        by_level = cells.setdefault(parts[0], {})
        by_level[parts[-1]] = by_level.get(parts[-1], 0) + cell.cellNumber
    pinned = []
    for number, pin in enumerate(owed.pinnedCells):
        if pin.pinnedCellId not in hardware.pins:
            raise _fault(
                located, (*path, "pinnedCells", number), f"no cell is pinned as {pin.pinnedCellId!r}",
                "name a pinnedCellId of the hardware",
            )  # fmt: skip
        pinned.append(hardware.pins[pin.pinnedCellId])
    return ClusterSpec(name, cells, tuple(pinned))


def as_queues(hived: HivedCluster) -> list[dict[str, object]]:
    """What tenants are owed, as the section ``queues`` of Millpond's configuration has it.

    Raises:
        InvalidInputError: a pinned cell is less than a machine, which Millpond cannot pin.
    """
    chains = {spec.name: spec for spec in hived.chains}
    queues: list[dict[str, object]] = []
    for cluster in hived.clusters:
        cells: dict[str, int] = {}
        cards = 0
        for name, owed in cluster.cells.items():
            spec = chains[name]
            for level, count in owed.items():
                number = spec.levels.index(level)
                ours = _our_name(hived, spec, number)
                cells[ours] = cells.get(ours, 0) + count
                cards += count * spec.sizes[number]
        pinned: list[str] = []
        for pin in cluster.pinned:
            spec = chains[pin.chain]
            pinned_level = spec.levels.index(pin.level)
            if pinned_level < spec.node_level:
                raise InvalidInputError(
                    f"the pinned cell {pin.name} of {cluster.name} is less than a machine", "pin whole machines"
                )
            nodes = spec.sizes[pinned_level] // spec.sizes[spec.node_level]
            pinned += [name for name, _ in spec.nodes[pin.cell * nodes : (pin.cell + 1) * nodes]]
            cards += spec.sizes[pinned_level]
        queue: dict[str, object] = {"name": cluster.name, "guarantee": cards}
        queues.append(queue | ({"cells": cells} if cells else {}) | ({"pinned": pinned} if pinned else {}))
    return queues


def cells_of_several_kinds(hived: HivedCluster) -> Iterator[tuple[str, str, list[str]]]:
    """Cells that queues may get of any of several kinds of hardware, as Millpond's name none: (queue, cells, kinds)."""
    kinds: dict[str, set[str]] = {}
    for spec in hived.chains:
        for level in range(len(spec.levels)):
            kinds.setdefault(_our_name(hived, spec, level), set()).add(spec.model)
    chains = {spec.name: spec for spec in hived.chains}
    for cluster in hived.clusters:
        owed = ((chains[name], level) for name, levels in cluster.cells.items() for level in levels)
        for ours in dict.fromkeys(_our_name(hived, spec, spec.levels.index(level)) for spec, level in owed):
            if len(kinds[ours]) > 1:
                yield cluster.name, ours, sorted(kinds[ours])


def _our_name(hived: HivedCluster, spec: ChainSpec, level: int) -> str:
    """What Millpond calls a level: machines by their cards, where those of the chains have not as many."""
    sizes = spec.sizes
    if level > spec.node_level:
        return f"rack of {sizes[level] // sizes[spec.node_level]} nodes"
    if level == spec.node_level and len({each.sizes[each.node_level] for each in hived.chains}) == 1:
        return "node"
    return "card" if sizes[level] == 1 else f"{sizes[level]} cards"
