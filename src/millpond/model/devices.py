"""An accelerator as the pool knows it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Health(StrEnum):
    """Whether a device may be handed out."""

    OK = "ok"
    FAULTY = "faulty"
    """It reported an error, or vanished."""
    BUSY_ELSEWHERE = "busy-elsewhere"
    """Processes that are not ours use it; it is shown and never handed out."""


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator of any vendor, keyed by UUID.

    Attributes:
        index: its number on the node, as the vendor's tools count.
        memory_mib: capacity; 0 when unknown, then slices fit by their compute share alone.
        switch, socket: which PCIe switch and CPU socket it hangs on, numbered within the node.
        fake: pretended for trying Millpond without a GPU; said wherever the device is shown.
    """

    uuid: str
    index: int
    vendor: str
    model: str
    memory_mib: int = 0
    switch: int = 0
    socket: int = 0
    health: Health = Health.OK
    health_detail: str = ""
    fake: bool = False
