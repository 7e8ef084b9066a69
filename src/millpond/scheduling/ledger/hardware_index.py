"""Which models of cards lie where, and on which nodes a job may lie by their labels.

All of it is read from the descriptions of the nodes, and anew when one of these has changed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from millpond.model.hardware.card_layouts import DivisibleCard
from millpond.model.hardware.node_selection import NodeSelection, selects
from millpond.model.hardware.nodes import CLUSTER_LABEL, Node
from millpond.scheduling.ledger.hardware import Hardware
from millpond.scheduling.placement.spacing import PlaceTable


class HardwareIndex:
    """Answers about the hardware that are kept until it changes."""

    def __init__(self, hardware: Hardware) -> None:
        self._hardware = hardware
        self._version = -1
        self._without: dict[tuple[str, ...], NDArray[np.uint8]] = {}
        self._selected: dict[NodeSelection, NDArray[np.uint8]] = {}
        self._places: dict[str, PlaceTable] = {}
        self._nodes_of: dict[tuple[str, NodeSelection], tuple[Node, ...]] = {}
        self._numbers_of: dict[str, NDArray[np.int64]] = {}
        self._divisible_in: dict[str, tuple[DivisibleCard, ...]] = {}
        self._models_in: dict[str, tuple[str, ...]] = {}
        self._card_mib: dict[tuple[str, str], int] = {}

    def nodes_of(self, pool: str, selection: NodeSelection = ()) -> tuple[Node, ...]:
        """The nodes of a pool; of these, those that a job may have which is to lie on some alone."""
        self._read_anew()
        found = self._nodes_of.get((pool, selection))
        if found is None:
            if selection:
                found = tuple([node for node in self.nodes_of(pool) if selects(selection, node.labels)])
            else:
                found = tuple([node for node in self._hardware.nodes if node is not None and node.pool == pool])
            self._nodes_of[pool, selection] = found
        return found

    def numbers_of(self, pool: str) -> NDArray[np.int64]:
        """The numbers of the nodes of a pool, ascending; to be left as it is."""
        self._read_anew()
        found = self._numbers_of.get(pool)
        if found is None:
            nodes = enumerate(self._hardware.nodes)
            there = [number for number, node in nodes if node is not None and node.pool == pool]
            found = self._numbers_of[pool] = np.array(there, dtype=np.int64)
        return found

    def divisible_in(self, pool: str) -> tuple[DivisibleCard, ...]:
        """The cards of a pool that can be divided."""
        self._read_anew()
        found = self._divisible_in.get(pool)
        if found is None:
            found = self._divisible_in[pool] = tuple([card for node in self.nodes_of(pool) for card in node.divisible])
        return found

    def models_in(self, pool: str) -> tuple[str, ...]:
        """The models of the cards of a pool, in order of their names."""
        self._read_anew()
        found = self._models_in.get(pool)
        if found is None:
            found = tuple(sorted({device.model for node in self.nodes_of(pool) for device in node.devices}))
            self._models_in[pool] = found
        return found

    def largest_card_mib(self, pool: str, model: str) -> int:
        """The most memory that a card of a model has in a pool; 0 where it has none."""
        self._read_anew()
        if not self._card_mib:
            for node in (each for each in self._hardware.nodes if each is not None):
                for device in node.devices:
                    key = node.pool, device.model
                    self._card_mib[key] = max(self._card_mib.get(key, 0), device.memory_mib)
        return self._card_mib.get((pool, model), 0)

    def nodes_without(self, models: tuple[str, ...]) -> NDArray[np.uint8]:
        """(nodes,) 1 for those that have no card of these models; to be left as it is."""
        self._read_anew()
        if models not in self._without:
            self._without[models] = self._mask(lambda node: all(each.model not in models for each in node.devices))
        return self._without[models]

    def nodes_selected(self, selection: NodeSelection) -> NDArray[np.uint8]:
        """(nodes,) 1 for those that a job may have which is to lie on these alone; to be left as it is."""
        self._read_anew()
        if selection not in self._selected:
            self._selected[selection] = self._mask(lambda node: selects(selection, node.labels))
        return self._selected[selection]

    def places_by(self, label: str) -> PlaceTable:
        """The places that nodes make by a label; to be left as it is."""
        self._read_anew()
        if label not in self._places:
            without = "" if label == CLUSTER_LABEL else None
            nodes = self._hardware.nodes
            values = [None if node is None else dict(node.labels).get(label, without) for node in nodes]
            there = dict.fromkeys(value for value in values if value is not None)
            names = {name: number for number, name in enumerate(there)}
            numbers = [len(names) if value is None else names[value] for value in values]
            self._places[label] = PlaceTable(names, np.array(numbers, dtype=np.int64))
        return self._places[label]

    def _mask(self, holds: Callable[[Node], bool]) -> NDArray[np.uint8]:
        """(nodes,) 1 for those of which something holds, and for those that are gone."""
        return np.array([node is None or holds(node) for node in self._hardware.nodes], dtype=np.uint8)

    def _read_anew(self) -> None:
        if self._version != self._hardware.version:
            self._without.clear()
            self._selected.clear()
            self._places.clear()
            self._nodes_of.clear()
            self._numbers_of.clear()
            self._divisible_in.clear()
            self._models_in.clear()
            self._card_mib.clear()
            self._version = self._hardware.version
