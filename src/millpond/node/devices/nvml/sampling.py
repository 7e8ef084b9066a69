"""How NVIDIA cards fare, by a dozen calls of NVML for each."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from millpond.model.hardware.telemetry import DeviceSample, ProcessSample
from millpond.model.units import MIB
from millpond.node.devices.nvml.activity import ActivityMeter
from millpond.node.devices.nvml.library import Nvml, identity

_MILLI = 1000
_TEMPERATURE_OF_CHIP = 0
_CLOCK_OF_SM = 1
_STALE_AFTER_S = 2.0
_ENERGY_EVERY_S = 10.0
"""Driver 580 takes 3 to 4 ms of the CPU to tell the energy of an H200, and 1.5 ms to tell processes' uses apart; all
else takes 0.2 ms together. The counter misses nothing meanwhile."""
_LISTS = ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses")
"""The driver lists who computes and who draws (Vulkan, OpenGL) apart; one that does both is in both lists."""


class _Uses(NamedTuple):
    """What processes computed, as of the driver's latest sample."""

    until: int
    seen_at: float
    milli: Mapping[int, int]


class _Energy(NamedTuple):
    """What a device had drawn when it was last asked for that."""

    asked_at: float
    millijoules: int | None


class NvidiaSampler:
    """Samples the same devices again and again; each keeps its handle, as asking for one costs as much as a figure.

    Energy and activity are up to ten seconds old.

    Args:
        handles: of cards and of MIG instances, by UUID.
        clock: seconds, of any beginning.
    """

    def __init__(self, nvml: Nvml, handles: Mapping[str, Any], clock: Callable[[], float] = time.monotonic) -> None:
        self._nvml = nvml
        self._handles = handles
        self._clock = clock
        self._uses = dict.fromkeys(handles, _Uses(0, 0.0, {}))
        self._energies: dict[str, _Energy] = {}
        self._activity = ActivityMeter(nvml)

    def renewed(self, handles: Mapping[str, Any]) -> NvidiaSampler:
        """What samples these from now on: itself, unless others are there or an instance has been made again.

        An instance that is made again may have the UUID of the one before, whose handle is worth nothing any more.
        """
        if _identities(handles) == _identities(self._handles):
            return self
        another = NvidiaSampler(self._nvml, handles, self._clock)
        another._activity = self._activity  # which holds memory of the driver
        return another

    def sample(self) -> tuple[DeviceSample, ...]:
        """All of them; one that is lost is there, and nothing of it is known."""
        return tuple(self._sample(uuid, card) for uuid, card in self._handles.items())

    def _sample(self, uuid: str, card: Any) -> DeviceSample:
        ask = self._nvml.ask
        use, memory = ask("nvmlDeviceGetUtilizationRates", card), ask("nvmlDeviceGetMemoryInfo", card)
        power_mw, energy_mj = ask("nvmlDeviceGetPowerUsage", card), self._energy_mj(uuid, card)
        use_milli = None if use is None else int(use.gpu) * 10
        activity = self._activity.of(uuid, card, self._clock())
        return DeviceSample(
            uuid,
            use_milli=use_milli,
            memory_used_mib=None if memory is None else int(memory.used) // MIB,
            memory_mib=None if memory is None else int(memory.total) // MIB,
            power_w=None if power_mw is None else power_mw / _MILLI,
            energy_j=None if energy_mj is None else energy_mj / _MILLI,
            temperature_c=ask("nvmlDeviceGetTemperature", card, _TEMPERATURE_OF_CHIP),
            clock_mhz=ask("nvmlDeviceGetClockInfo", card, _CLOCK_OF_SM),
            processes=self._processes(uuid, card, use_milli),
            sm_milli=activity.sm_milli,
            tensor_milli=activity.tensor_milli,
        )

    def _energy_mj(self, uuid: str, card: Any) -> int | None:
        known, now = self._energies.get(uuid), self._clock()
        if known is None or now - known.asked_at >= _ENERGY_EVERY_S:
            known = self._energies[uuid] = _Energy(now, self._nvml.ask("nvmlDeviceGetTotalEnergyConsumption", card))
        return known.millijoules

    def _processes(self, uuid: str, card: Any, use_milli: int | None) -> tuple[ProcessSample, ...] | None:
        lists = [self._nvml.ask(name, card) for name in _LISTS]
        if lists[0] is None:
            return None
        memory_mib: dict[int, int | None] = {}
        for process in (process for running in lists for process in running or ()):
            known = memory_mib.get(process.pid)
            mib = None if process.usedGpuMemory is None else int(process.usedGpuMemory) // MIB
            memory_mib[process.pid] = known if mib is None else max(mib, known or 0)
        if len(memory_mib) == 1:  # the card's use is its own
            return tuple(ProcessSample(pid, mib, use_milli) for pid, mib in memory_mib.items())
        uses = self._uses_of(uuid, card) if memory_mib else {}
        return tuple(ProcessSample(pid, mib, uses.get(pid)) for pid, mib in memory_mib.items())

    def _uses_of(self, uuid: str, card: Any) -> Mapping[int, int]:
        """How much each process computed, by the driver's latest samples.

        They come several times a second while something computes, and old ones come again while there are no newer:
        what is older than two seconds says nothing about now. Several threads may ask. Under MPS all work is its
        server's.
        """
        known, now = self._uses[uuid], self._clock()
        samples = self._nvml.ask("nvmlDeviceGetProcessUtilization", card, known.until) or ()
        fresh = {sample.pid: int(sample.smUtil) * 10 for sample in samples if sample.timeStamp > known.until}
        if fresh:
            known = self._uses[uuid] = _Uses(max(sample.timeStamp for sample in samples), now, fresh)
        return known.milli if now - known.seen_at <= _STALE_AFTER_S else {}


def _identities(handles: Mapping[str, Any]) -> dict[str, object]:
    return {uuid: identity(handle) for uuid, handle in handles.items()}
