"""What a cluster has in all, and what of that may be handed out: sums over nodes, kept until the hardware changes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from millpond.model.hardware.nodes import amount_of_nodes
from millpond.model.resources import CARD_MILLI, Amount
from millpond.scheduling.ledger.hardware import Hardware
from millpond.scheduling.placement.arrays import ClusterArrays, Int64Array


class Capacity:
    """Sums over the nodes and devices of one cluster."""

    def __init__(self, arrays: ClusterArrays, hardware: Hardware) -> None:
        self._arrays = arrays
        self._hardware = hardware
        self._milli, self._milli_at = 0, -1
        self._amount, self._amount_at = Amount(), -1
        self._milli_by_pool: dict[str, int] = {}
        self._open_milli, self._open_at = 0, -1

    def copy_from(self, other: Capacity) -> None:
        """Take over what another one has summed up of the same hardware."""
        self._milli, self._milli_at = other._milli, other._milli_at

    @property
    def gpu_milli(self) -> int:
        """Compute of all devices that may be handed out."""
        arrays, count = self._arrays, self._arrays.device_count
        if self._milli_at != self._hardware.version:
            self._milli = int(arrays.device_usable[:count].sum()) * CARD_MILLI
            self._milli_at = self._hardware.version
            self._milli_by_pool.clear()
        return self._milli

    @property
    def amount(self) -> Amount:
        """All that may be handed out."""
        if self._amount_at != self._hardware.version:
            nodes = [node for node in self._hardware.nodes if node is not None]
            cpu = sum(self._hardware.pools[node.pool].cpu_capacity_milli(node) for node in nodes)
            self._amount = Amount(self.gpu_milli, cpu, sum(node.memory_mib for node in nodes))
            self._amount_at = self._hardware.version
        return self._amount

    @property
    def of_all_machines(self) -> Amount:
        """All that known machines have, whether or not it may be handed out now; cards by their models."""
        nodes = [node for node in self._hardware.nodes if node is not None]
        return amount_of_nodes(nodes, self._hardware.pools)

    def gpu_milli_of(self, pool: str) -> int:
        """``gpu_milli`` of one pool."""
        whole = self.gpu_milli
        if len(self._hardware.pools) == 1:
            return whole
        if not self._milli_by_pool:
            self._milli_by_pool = dict.fromkeys(self._hardware.pools, 0)
            for node in self._hardware.nodes:
                if node is not None:
                    usable = sum(map(self._hardware.is_usable, node.devices))
                    self._milli_by_pool[node.pool] += CARD_MILLI * usable
        return self._milli_by_pool.get(pool, 0)

    @property
    def open_gpu_milli(self) -> int:
        """Compute of all devices that may be handed out and whose nodes are open."""
        if self._open_at != self._hardware.version:
            self._open_milli = int(self._is_open().sum()) * CARD_MILLI
            self._open_at = self._hardware.version
        return self._open_milli

    def open_card_mib(self) -> int:
        """The memory of all devices that may be handed out now, taken or free."""
        return int((self._arrays.device_memory_mib[: self._arrays.device_count] * self._is_open()).sum())

    def idle_by_model(self, models: Sequence[str]) -> dict[str, int]:
        """Free compute of the devices that may be handed out now, by model.

        Args:
            models: the names of the models by their numbers.
        """
        arrays, devices = self._arrays, self._arrays.device_count
        free = arrays.compute_free_milli[:devices] * self._is_open()
        by_number = np.bincount(arrays.device_model[:devices], weights=free)
        return {models[number]: int(by_number[number]) for number in np.flatnonzero(by_number).tolist()}

    def by_model(self) -> dict[int, int]:
        """Compute of the usable devices by number of their model."""
        count = self._arrays.device_count
        usable = self._arrays.device_usable[:count] != 0
        models, totals = np.unique(self._arrays.device_model[:count][usable], return_counts=True)
        return {int(model): int(total) * CARD_MILLI for model, total in zip(models, totals, strict=True)}

    def _node_of_devices(self) -> Int64Array:
        """(devices,) the index of the node of each."""
        nodes = self._arrays.node_count
        return np.repeat(np.arange(nodes), self._arrays.device_total[:nodes])

    def _is_present(self) -> Int64Array:
        """(nodes,) 1 for a node that is there, 0 for one that is gone."""
        is_present = np.zeros(self._arrays.node_count, dtype=np.int64)
        is_present[list(self._hardware.node_index.values())] = 1
        return is_present

    def _is_open(self) -> Int64Array:
        """(devices,) 1 for a device that may be handed out now, 0 for others."""
        arrays, nodes, devices = self._arrays, self._arrays.node_count, self._arrays.device_count
        is_open: Int64Array = (self._is_present() * arrays.node_usable[:nodes])[self._node_of_devices()]
        return is_open * arrays.device_usable[:devices]
