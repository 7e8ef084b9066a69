"""What one task has of one node, and how it counts."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from millpond.scheduling.placement.shapes import Shape


class Hold(IntEnum):
    """How a holding counts in the ledger."""

    NOTHING = 0
    RUNNING = 1
    FROZEN = 2
    SWAPPED = 3


class Holding:
    """What one task has of one node.

    Attributes:
        devices: device indices in the cluster's arrays.
        memory_mib: device memory taken, one entry a device.
        hold: how it counts now.
    """

    __slots__ = (
        "compute_milli",
        "cpu_milli",
        "devices",
        "extras",
        "hold",
        "limit_milli",
        "memory_mib",
        "node",
        "ram_mib",
    )

    def __init__(self, node: int, shape: Shape, devices: Sequence[int], memory_mib: Sequence[int]) -> None:
        self.node = node
        self.devices = tuple(devices)
        self.memory_mib = tuple(memory_mib)
        self.cpu_milli = shape.cpu_milli
        self.ram_mib = shape.memory_mib
        self.compute_milli = shape.compute_milli
        self.limit_milli = shape.limit_milli
        self.extras = shape.extras
        self.hold = Hold.NOTHING
