"""What every vendor of accelerators answers: are there any, which, and how a process is given some of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from millpond.model.devices import Device


class Availability(NamedTuple):
    """Whether devices of a vendor can be used here, and in one clause why (not)."""

    usable: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Ours:
    """What our own tasks use now; everything else on a device is somebody else's.

    Attributes:
        pids: all processes of our tasks.
        devices: UUIDs of the devices that our tasks hold.
    """

    pids: frozenset[int] = frozenset()
    devices: frozenset[str] = frozenset()


NOTHING_OURS = Ours()


class DeviceVendor(Protocol):
    """One vendor's devices on this machine. Absence of hardware or driver is an answer, never an exception."""

    name: str

    def available(self) -> Availability:
        """Whether there is anything to discover."""

    def discover(self, ours: Ours = NOTHING_OURS) -> tuple[Device, ...]:
        """All devices with their present health, by index. Empty where ``available`` says no."""

    def use_milli(self, devices: Collection[str]) -> dict[str, int]:
        """How much of the last moment each of these devices was computing, 0 to 1000; only those that can tell.

        Args:
            devices: UUIDs.
        """

    def environment(self, devices: Sequence[Device]) -> dict[str, str]:
        """Variables that let a process see exactly these devices, in this order."""
