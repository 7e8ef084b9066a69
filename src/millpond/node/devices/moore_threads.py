"""GPUs of Moore Threads, by the vendor's Python binding of its management library (``mthreads-ml-py``)."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from millpond.model.hardware.devices import Device
from millpond.model.hardware.telemetry import DeviceLink, DeviceSample
from millpond.model.hardware.topology import Link
from millpond.model.units import MIB
from millpond.node.devices.vendor import NO_PROCESSES, Availability, DeviceVendor, Fact, OwnProcesses

_MULTIPLE_SWITCHES, _SAME_NODE = 2, 4
"""Levels of topology, from the binding's description: up to here behind common PCIe switches, or in one NUMA node."""


class MooreThreadsVendor(DeviceVendor):
    """What the library counts.

    Args:
        load: gives the ``pymtml`` module; an ImportError means that it is not installed.
    """

    name = "moore-threads"
    title = "Moore Threads"
    experimental = True
    sample_every_s = 1.0

    def __init__(self, load: Callable[[], Any] = lambda: importlib.import_module("pymtml")) -> None:
        self._load = load
        self._mtml: Any = None

    def available(self) -> Availability:
        """Whether binding, driver and at least one card are there."""
        if self._mtml is None:
            try:
                mtml = self._load()
            except ImportError:
                return Availability(False, "the Python package mthreads-ml-py is not installed", installed=False)
            try:
                mtml.mtmlLibraryInit()
            except mtml.MTMLError as error:
                return Availability(False, f"no Moore Threads driver ({error})")
            self._mtml = mtml
        count = self._ask("mtmlLibraryCountDevice") or 0
        return Availability(count > 0, f"{count} found by the Moore Threads driver")

    def discover(self, own: OwnProcesses = NO_PROCESSES) -> tuple[Device, ...]:
        """All cards; the library reports no processes or faults."""
        return tuple(
            Device(
                uuid, index, self.name, self._model(card), self._sample(uuid, card).memory_mib or 0, experimental=True
            )
            for index, uuid, card in self._cards()
        )

    def sample(self) -> tuple[DeviceSample, ...]:
        """What the library reports of each."""
        return tuple(self._sample(uuid, card) for _, uuid, card in self._cards())

    def links(self) -> tuple[DeviceLink, ...]:
        """By where the cards sit on the bus."""
        cards = list(self._cards())
        levels = (
            (one, other, self._ask("mtmlDeviceGetTopologyLevel", mine, others))
            for place, (_, one, mine) in enumerate(cards)
            for _, other, others in cards[place + 1 :]
        )
        return tuple(DeviceLink(one, other, _link(level)) for one, other, level in levels if level is not None)

    def facts(self) -> tuple[Fact, ...]:
        """The driver's version."""
        system = self._ask("mtmlLibraryInitSystem") if self.available().usable else None
        version = None if system is None else self._ask("mtmlSystemGetDriverVersion", system)
        return (Fact("driver", version or "of an unknown version"),)

    def environment(self, devices: Sequence[Device]) -> dict[str, str]:
        """By index, as the driver counts."""
        return {"MUSA_VISIBLE_DEVICES": ",".join(str(device.index) for device in devices)}

    def _cards(self) -> Iterator[tuple[int, str, Any]]:
        if not self.available().usable:
            return
        for index in range(self._ask("mtmlLibraryCountDevice") or 0):
            card = self._ask("mtmlLibraryInitDeviceByIndex", index)
            uuid = None if card is None else self._ask("mtmlDeviceGetUUID", card)
            if uuid:
                yield index, uuid, card

    def _model(self, card: Any) -> str:
        return "-".join((self._ask("mtmlDeviceGetName", card) or "unknown").split())

    def _sample(self, uuid: str, card: Any) -> DeviceSample:
        memory, gpu = self._ask("mtmlDeviceInitMemory", card), self._ask("mtmlDeviceInitGpu", card)
        total = None if memory is None else self._ask("mtmlMemoryGetTotal", memory)
        used = None if memory is None else self._ask("mtmlMemoryGetUsed", memory)
        use = None if gpu is None else self._ask("mtmlGpuGetUtilization", gpu)
        power_mw = self._ask("mtmlDeviceGetPowerUsage", card)
        sample = DeviceSample(
            uuid,
            use_milli=None if use is None else use * 10,
            memory_used_mib=None if used is None else used // MIB,
            memory_mib=None if total is None else total // MIB,
            power_w=None if power_mw is None else power_mw / 1000,
            temperature_c=None if gpu is None else self._ask("mtmlGpuGetTemperature", gpu),
            clock_mhz=None if gpu is None else self._ask("mtmlGpuGetClock", gpu),
        )
        for free, handle in (("mtmlDeviceFreeMemory", memory), ("mtmlDeviceFreeGpu", gpu)):
            if handle is not None:
                self._ask(free, handle)
        return sample

    def _ask(self, function: str, *arguments: Any) -> Any:
        try:
            return getattr(self._mtml, function)(*arguments)
        except (self._mtml.MTMLError, AttributeError):
            return None


def _link(level: int) -> Link:
    if level <= _MULTIPLE_SWITCHES:
        return Link.PCIE_SWITCH
    return Link.SOCKET if level <= _SAME_NODE else Link.CROSS_SOCKET
