"""Device memory of work that was swapped off its devices, and what is kept free on them for its sake.

A pool may bound what is on a device and what was swapped off it together (``Pool.memory_factor_milli``). Where that
much is there already, the rest of the device's memory is kept free, so that swapped work finds no more in its way than
its pool allows. It is taken off the free memory in the arrays, where every search sees it.
"""

from __future__ import annotations

from collections.abc import Iterable

from millpond.scheduling.ledger.hardware import Hardware
from millpond.scheduling.ledger.holdings import Holding
from millpond.scheduling.placement.arrays import ClusterArrays

_NO_BOUND = 2**62


class SwappedOff:
    """Keeps the account of one cluster.

    Attributes:
        mib: by index of a device, how much was swapped off it; none where there is none.
        kept_mib: by index of a device, how much is kept free on it.
    """

    def __init__(self, arrays: ClusterArrays, hardware: Hardware) -> None:
        self.mib: dict[int, int] = {}
        self._arrays = arrays
        self._hardware = hardware
        self.kept_mib: dict[int, int] = {}

    def copy_from(self, other: SwappedOff) -> None:
        """Keep the same account, on a copy of the same arrays."""
        self.mib, self.kept_mib = dict(other.mib), dict(other.kept_mib)

    def add(self, device: int, mib: int) -> None:
        """So much more was swapped off a device; negative: it is back, or over."""
        total = self.mib.pop(device, 0) + mib
        if total:
            self.mib[device] = total
        self.settle((device,))

    def settle(self, devices: Iterable[int]) -> None:
        """What is held of these devices, or their pool, has changed: what is kept free on them follows."""
        free = self._arrays.device_memory_free_cells
        for device in devices:
            kept = self.kept_mib.pop(device, 0)
            if device not in self.mib and not kept:
                continue
            unheld = free[device] = free[device] + kept
            beyond = self.mib.get(device, 0) + self._arrays.device_memory_cells[device] - self._most(device)
            if beyond > 0 and unheld > 0:
                kept = self.kept_mib[device] = min(beyond, unheld)
                free[device] = unheld - kept

    def is_beyond(self, devices: Iterable[int]) -> bool:
        """Whether what is on one of these devices and what was swapped off it exceed what the pool's factor allows."""
        capacity, free = self._arrays.device_memory_cells, self._arrays.device_memory_free_cells
        for device in devices:
            held = capacity[device] - free[device] - self.kept_mib.get(device, 0)
            if held > self._most(device) - self.mib.get(device, 0):
                return True
        return False

    def leave_room(self, holdings: Iterable[Holding]) -> bool:
        """Whether holdings may be swapped off devices that others may fill up then, by the pool's factor."""
        capacity = self._arrays.device_memory_cells
        return all(
            capacity[device] + self.mib.get(device, 0) + memory <= self._most(device)
            for holding in holdings
            for device, memory in zip(holding.devices, holding.memory_mib, strict=True)
        )

    def _most(self, device: int) -> int:
        """How much memory work on a device and work that was swapped off it may have together, in MiB."""
        capacity, factor = self._arrays.device_memory_cells[device], self._hardware.memory_factor_of(device)
        return capacity * factor // 1000 if factor else _NO_BOUND
