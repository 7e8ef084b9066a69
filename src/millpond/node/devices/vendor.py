"""What every vendor of accelerators answers: are there any, which, how they fare, and how a process is given some.

Vendors are found by the entry-point group ``millpond.devices`` (``node.devices.discovery``), in other packages too.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from millpond.model.hardware.card_layouts import CardLayout
from millpond.model.hardware.devices import Device, DeviceHealth
from millpond.model.hardware.power import PowerLimits
from millpond.model.hardware.telemetry import DeviceLink, DeviceSample, HealthEvent

STALE_AFTER_S: Final = 60.0
"""Older samples say nothing about now: a driver hangs, or a tool does."""
_MOST_NAMED = 3


class Availability(NamedTuple):
    """Whether devices of a vendor can be used here.

    Attributes:
        reason: why (not), in one clause.
        installed: there are signs of such devices, so that a reason why not is of interest.
    """

    usable: bool
    reason: str
    installed: bool = True


@dataclass(frozen=True, slots=True)
class OwnProcesses:
    """What this server's tasks use now; everything else on a device is foreign.

    Attributes:
        pids: all processes of its tasks.
        devices: UUIDs of the devices that they hold.
    """

    pids: frozenset[int] = frozenset()
    devices: frozenset[str] = frozenset()


NO_PROCESSES = OwnProcesses()


def used_by(device: str, pids: Collection[int], own: OwnProcesses) -> tuple[DeviceHealth, str]:
    """The health of a device that is well otherwise, by the processes on it, and who they are.

    Args:
        device: its UUID.
    """
    foreign = set(pids) - own.pids
    if device in own.devices:
        # Inside a container the driver numbers processes as the host does; numbers that mean nothing here
        # are then our own tasks, as the device is theirs.
        foreign = {pid for pid in foreign if Path(f"/proc/{pid}").exists()}
    if not foreign:
        return DeviceHealth.OK, ""
    named = ", ".join(_process(pid) for pid in sorted(foreign)[:_MOST_NAMED])
    more = f" and {len(foreign) - _MOST_NAMED} more" if len(foreign) > _MOST_NAMED else ""
    return DeviceHealth.BUSY_ELSEWHERE, f"used by {'process' if len(foreign) == 1 else 'processes'} {named}{more}"


def _process(pid: int) -> str:
    try:
        return f"{pid} ({Path(f'/proc/{pid}/comm').read_text().strip()})"
    except OSError:
        return str(pid)  # it is gone, or belongs to another container


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact about a vendor's driver or devices for the machine's administrator.

    Attributes:
        remedy: what would mend it; empty where nothing is wrong.
    """

    what: str
    found: str
    remedy: str = ""


class HealthStream(Protocol):
    """What a driver reports to its listener."""

    def wait(self, timeout_s: float) -> tuple[HealthEvent, ...]:
        """The next events; none when the time is over. Blocks, so it wants a thread of its own."""


class PowerControl(Protocol):
    """The knobs of devices whose power can be set."""

    def limits(self, device: str) -> PowerLimits | None:
        """What can be set on a device (by UUID); None when it has no power of its own."""

    def cap(self, device: str, watts: float) -> None:
        """Let it draw so much at the most.

        Raises:
            UnavailableError: the driver refuses.
        """

    def clock(self, device: str, megahertz: int | None) -> None:
        """Let it be clocked so high at the most; None: as the driver likes.

        Raises:
            UnavailableError: the driver refuses.
        """


class CardDivider(Protocol):
    """Divides cards by their own hardware."""

    def layout(self, card: str, instances: Sequence[str]) -> CardLayout | None:
        """What a card (by UUID) would become; None for one that cannot be divided now.

        Raises:
            InvalidInputError: it offers no such instances, or they do not fit together.
        """

    def divide(self, card: str, instances: Sequence[str]) -> None:
        """Have a card that nobody uses divided so, and no other way. May take seconds.

        Raises:
            UnavailableError: somebody uses it, or the driver refuses; it is as it was, as far as that can be had.
            InvalidInputError: as ``layout``.
        """


class DeviceVendor(Protocol):
    """One vendor's devices on this machine. Absence of hardware or driver is an answer, never an exception.

    A vendor of which nothing is known but its devices and their figures inherits the answers to all other questions.

    Attributes:
        name: as in ``Device.vendor``.
        title: as people write it.
        experimental: as in ``Device.experimental``.
        sample_every_s: how often a look is worth what it costs.
    """

    name: str
    title: str
    experimental: bool
    sample_every_s: float

    def available(self) -> Availability:
        """Whether there is anything to discover."""

    def discover(self, own: OwnProcesses = NO_PROCESSES) -> tuple[Device, ...]:
        """All devices with their present health, by index. Empty where ``available`` says no.

        Raises:
            UnavailableError: it is not known now; what was known of them stays.
        """

    def sample(self) -> tuple[DeviceSample, ...]:
        """How all devices fare; what one does not report is None.

        Raises:
            UnavailableError: it is not known now.
        """

    def links(self) -> tuple[DeviceLink, ...]:
        """How the devices are joined; pairs of which nothing is known are left out."""
        return ()

    def facts(self) -> tuple[Fact, ...]:
        """What a person looking after the machine wants to know, the driver's version first."""
        return ()

    def pci_addresses(self) -> dict[str, str]:
        """Where the devices are on the PCI bus, by UUID; those of which it is not known are left out."""
        return {}

    def device_files(self) -> dict[str, Path]:
        """The files by which programs open whole cards, by UUID; those of which it is not known are left out."""
        return {}

    def watch(self) -> HealthStream | None:
        """Listen to what the driver reports from now on; None when it reports nothing."""
        return None

    def swaps(self) -> bool:
        """Whether the device memory of a process can be moved to host memory and back here."""
        return False

    def remaps(self) -> bool:
        """Whether what was moved to host memory can come back on another device of the same model."""
        return False

    def power(self) -> PowerControl | None:
        """The knobs of the devices; None where there are none. They stay as they are unless configured."""
        return None

    def divider(self) -> CardDivider | None:
        """What divides cards; None where nothing does. They stay as they are unless configured."""
        return None

    def environment(self, devices: Sequence[Device]) -> dict[str, str]:
        """Variables that let a process see exactly these devices, in this order; with none, none at all."""
