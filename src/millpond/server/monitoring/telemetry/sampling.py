"""Sample all devices regularly, and keep the last minutes of each."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from millpond.model.hardware.telemetry import DeviceSample
from millpond.node.devices.vendor import STALE_AFTER_S, DeviceVendor
from millpond.node.host.clocks import WallClock
from millpond.node.host.machine import Machine
from millpond.node.host.periodic_worker import PeriodicWorker

KEPT: Final = 120
"""Samples of each device: two minutes where one is taken every second."""
_KEPT_IN_ALL: Final = 20_000
"""Of thousands of pretended cards a few are kept: each look for garbage among all objects passes all of them."""
_LEAST_KEPT: Final = 2
_GONE_AFTER_S: Final = 3_600.0
COST_SHARE: Final = 100
"""A look that costs much is taken seldom, so that all looks together cost one part in so many of a core."""


IDLE_MILLI: Final = 50
"""A card that computes for at most this part of the time is idle: displays and watchers take some."""


class Sampled(NamedTuple):
    """One look at a device; ``at`` is in seconds since 1970."""

    at: float
    sample: DeviceSample


class _Latest(NamedTuple):
    """The last samples of all devices after so many looks; some of them are too old from ``until`` on."""

    looks: int
    until: float
    samples: Mapping[str, DeviceSample]


Samples = Callable[[str], Sequence[Sampled]]
"""What is remembered of a device by its UUID, oldest first."""


class Telemetry:
    """The samples of all devices of a machine. Each vendor has a thread, so that one that hangs holds up no other."""

    def __init__(self, machine: Machine, clock: WallClock) -> None:
        self._vendors = tuple(machine.vendors.values())
        self._clock = clock
        devices = [device.uuid for node in machine.nodes for device in node.devices]
        self._kept = max(_LEAST_KEPT, min(KEPT, _KEPT_IN_ALL // max(len(devices), 1)))
        self._divisible = any(node.divisible for node in machine.nodes)
        self._looks = 0
        self._latest: _Latest | None = None
        self._rings = {uuid: deque[Sampled](maxlen=self._kept) for uuid in devices}
        self._workers = [
            PeriodicWorker(
                f"{vendor.name}-samples",
                partial(self._pass, vendor),
                vendor.sample_every_s,
                f"{vendor.title} devices cannot be sampled",
                expected=(),  # whatever a plugin may raise
            )
            for vendor in self._vendors
        ]

    def start(self) -> None:
        """Begin to look."""
        for worker in self._workers:
            worker.start()

    def close(self) -> None:
        """No more looks; one that hangs is not waited for."""
        for worker in self._workers:
            worker.close(0.0)

    def look(self, vendor: DeviceVendor) -> None:
        """Sample the devices of a vendor once."""
        samples = vendor.sample()
        at = self._clock()
        for sample in samples:
            ring = self._rings.get(sample.device)
            if ring is None and self._divisible:
                ring = self._ring_of_new(sample.device, at)
            if ring is not None:  # a card that others have cut up since the start is not the pool's
                ring.append(Sampled(at, _without_odd_figures(sample)))
        self._looks += 1

    def _ring_of_new(self, device: str, at: float) -> deque[Sampled]:
        """The ring of a device that a card was divided into; those of devices that are long gone are dropped."""
        gone = [uuid for uuid, ring in self._rings.items() if ring and ring[-1].at < at - _GONE_AFTER_S]
        rings = {uuid: ring for uuid, ring in self._rings.items() if uuid not in gone}
        ring = rings[device] = deque[Sampled](maxlen=self._kept)
        self._rings = rings  # others read it meanwhile
        return ring

    def latest(self, device: str) -> Sampled | None:
        """The last sample of a device; None when there is none, or it is too old to mean anything."""
        ring = self._rings.get(device)
        if not ring:
            return None
        last = ring[-1]
        return last if self._clock() - last.at <= STALE_AFTER_S else None

    def latest_samples(self) -> Mapping[str, DeviceSample]:
        """The last samples of all devices, by UUID, without those too old to mean anything.

        It is the object of before as long as nothing was sampled and none has become too old.
        """
        now, known, looks = self._clock(), self._latest, self._looks
        if known is None or known.looks != looks or known.until < now:
            last = [(uuid, ring[-1]) for uuid, ring in self._rings.items() if ring]
            fresh = [(uuid, each) for uuid, each in last if each.at >= now - STALE_AFTER_S]
            until = min((each.at for _, each in fresh), default=math.inf) + STALE_AFTER_S
            self._latest = known = _Latest(looks, until, {uuid: each.sample for uuid, each in fresh})
        return known.samples

    def recent(self, device: str) -> tuple[Sampled, ...]:
        """What is remembered of a device, oldest first."""
        return tuple(self._rings.get(device, ()))

    def use_milli(self, devices: Collection[str]) -> dict[str, int]:
        """How much of the last moment each of these devices was computing, 0 to 1000; those that report it."""
        found = {device: self.latest(device) for device in devices}
        return {
            device: last.sample.use_milli
            for device, last in found.items()
            if last is not None and last.sample.use_milli is not None
        }

    def _pass(self, vendor: DeviceVendor) -> float:
        begun_s = time.thread_time()
        self.look(vendor)
        return max(vendor.sample_every_s, (time.thread_time() - begun_s) * COST_SHARE)


def _without_odd_figures(sample: DeviceSample) -> DeviceSample:
    """A sample whose figures can be added up: some tools print ``nan``, or a word, where a number is expected."""
    power, energy = _figure(sample.power_w), _figure(sample.energy_j)
    if power == sample.power_w and energy == sample.energy_j:
        return sample
    return replace(sample, power_w=power, energy_j=energy)


def _figure(reported: object) -> float | None:
    return reported if isinstance(reported, (int, float)) and math.isfinite(reported) else None
