"""What devices report: how busy they are, what they draw, what goes wrong on them.

Whatever a device or its driver does not report is None. Zero is a measurement.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from millpond.model.hardware.topology import Link
from millpond.model.sharing import SliceHold


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """One process on a device.

    Attributes:
        pid: as the driver counts, which inside a container may be the host's numbers.
        memory_mib: device memory that it holds.
        use_milli: part of the last moment in which its work was on the device, 0 to 1000.
    """

    pid: int
    memory_mib: int | None = None
    use_milli: int | None = None


@dataclass(frozen=True, slots=True)
class DeviceSample:
    """One look at one device.

    Attributes:
        device: its UUID.
        use_milli: part of the last moment in which it was computing, 0 to 1000.
        memory_used_mib, memory_mib: device memory in use, by whomever, and in all.
        energy_j: drawn since the driver was loaded; only differences mean anything.
        temperature_c: of the chip.
        clock_mhz: of what computes.
        processes: who is on it; None when that is unknown, empty when there are none.
        sm_milli, tensor_milli: part of the last seconds in which its multiprocessors, and its tensor cores, worked, as
            a mean over all of them, 0 to 1000; some drivers and cards count it.
    """

    device: str
    use_milli: int | None = None
    memory_used_mib: int | None = None
    memory_mib: int | None = None
    power_w: float | None = None
    energy_j: float | None = None
    temperature_c: int | None = None
    clock_mhz: int | None = None
    processes: tuple[ProcessSample, ...] | None = None
    sm_milli: int | None = None
    tensor_milli: int | None = None


@dataclass(frozen=True, slots=True)
class DeviceLink:
    """How two devices of one machine are joined.

    Attributes:
        one, other: their UUIDs; each pair is listed once.
        link: the best way between them; the smaller the value, the better.
    """

    one: str
    other: str
    link: Link


class FaultScope(StrEnum):
    """How far what a driver reported reaches."""

    TASK = "task"
    """A program on the device did something wrong, or has to be started again; the device is well."""
    DEVICE = "device"
    """The device cannot be trusted until it was reset, or has been quiet for long."""
    PERSON = "person"
    """The same, and no reset mends it: a person has to look at the card."""
    NOTE = "note"
    """Nothing has to be done."""


@dataclass(frozen=True, slots=True)
class HealthEvent:
    """Something that a driver reported of a device.

    Attributes:
        device: its UUID, or that of the card it was cut out of; empty when the driver did not say.
        text: what it was.
    """

    device: str
    scope: FaultScope
    text: str


@dataclass(frozen=True, slots=True)
class SliceReading:
    """What a task makes of its part of a device, as its node counts it.

    Attributes:
        device: by UUID.
        hold: what keeps the task to its part.
        busy_ns: device time that it has used so far.
        memory_mib: device memory that it has on the device now.
        swapped_mib: what of it lies on the host instead.
        denials: requests for memory beyond its part that were refused so far.
    """

    job: str
    attempt: int
    task: int
    device: str
    hold: SliceHold = SliceHold.UNKNOWN
    busy_ns: int | None = None
    memory_mib: int | None = None
    swapped_mib: int | None = None
    denials: int | None = None
