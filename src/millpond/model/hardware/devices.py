"""An accelerator as the pool knows it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

SWAP_SHARE = 2
"""One part in so many of a node's memory is for work that was swapped off its devices, where the configuration does not
say and the devices can swap: such work keeps what it had of host memory too."""


class DeviceHealth(StrEnum):
    """Whether a device may be handed out."""

    OK = "ok"
    FAULTY = "faulty"
    """It reported an error, or vanished."""
    BUSY_ELSEWHERE = "busy-elsewhere"
    """Others use it: foreign processes, or a layout that leaves nothing of it to hand out. It is shown
    and never handed out."""


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator of any vendor, keyed by UUID.

    Attributes:
        index: its number on the node, as the vendor's tools count.
        memory_mib: capacity; 0 when unknown, then slices fit by their compute share alone.
        switch, socket: which PCIe switch and CPU socket it hangs on, numbered within the node.
        fake: pretended for trying Millpond without a GPU; said wherever the device is shown.
        experimental: its vendor's adapter was written from documentation and has not met such a device yet; said
            wherever the device is shown.
        parent: of an instance that the hardware cut out of a card (MIG): the card's UUID. ``index`` is the card's then.
        instance: its number on that card.
        remaps: work that was swapped off it can come back on another device of its node, of its vendor and model.
        context_mib: what a program that does nothing takes of it already; no slice of it is that small. 0: unknown.
        cap_range_w: the least and the greatest power cap that jobs may have it kept at; None: it cannot be capped.
    """

    uuid: str
    index: int
    vendor: str
    model: str
    memory_mib: int = 0
    switch: int = 0
    socket: int = 0
    health: DeviceHealth = DeviceHealth.OK
    health_detail: str = ""
    fake: bool = False
    experimental: bool = False
    parent: str = ""
    instance: int | None = None
    remaps: bool = False
    context_mib: int = 0
    cap_range_w: tuple[float, float] | None = None

    @property
    def card(self) -> str:
        """UUID of the card that it is, or that it was cut out of."""
        return self.parent or self.uuid
