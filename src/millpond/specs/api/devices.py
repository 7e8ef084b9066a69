"""Devices as they are now: figures with their units, null where unknown."""

from __future__ import annotations

from dataclasses import dataclass, field

from millpond.specs.api.nodes import SliceInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceStatus(SliceInfo):
    """What one task holds of a device, and what it makes of it.

    Attributes:
        job, user: empty user and a general word instead of the id where they are not for the reader.
        state: that of the task; ``swapped`` also while its node has moved it aside for a moment.
        share_class: who goes first on the device: ``online``, ``normal``, ``backfill``.
        hold: what keeps the task to its part, a ``model.sharing.SliceHold``.
        use_milli: part of the last seconds in which its work was on the device.
        memory_used_mib, swapped_mib: what it has on the device, and of it on the host.
        denials: requests for memory beyond its part that were refused.
    """

    attempt: int
    role: str
    user: str
    share_class: str
    hold: str | None = None
    use_milli: int | None = None
    memory_used_mib: int | None = None
    swapped_mib: int | None = None
    denials: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplePoint:
    """One look at a device.

    Attributes:
        at: seconds since 1970.
        use_milli: part of the last moment in which it was computing.
    """

    at: float
    use_milli: int | None = None
    memory_used_mib: int | None = None
    power_w: float | None = None
    energy_j: float | None = None
    temperature_c: int | None = None
    clock_mhz: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceStatus:
    """A device, its latest figures, and who holds what of it.

    Attributes:
        instance: number of the part that the hardware cut out of the card ``index`` (MIG).
        health: a ``model.devices.DeviceHealth``.
        experimental: the adapter of its vendor was written from documentation alone.
        latest: None where nothing was sampled lately.
        history: earlier looks, oldest first, as far back as was asked for and is remembered.
    """

    node: str
    pool: str
    uuid: str
    index: int
    instance: int | None = None
    vendor: str
    model: str
    memory_mib: int
    health: str
    health_detail: str = ""
    fake: bool = False
    experimental: bool = False
    latest: SamplePoint | None = None
    slices: list[SliceStatus] = field(default_factory=list)
    history: list[SamplePoint] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceList:
    """All devices, node by node."""

    devices: list[DeviceStatus]
