"""What one task has of one node, and how it counts."""

from __future__ import annotations

from enum import IntEnum

from millpond.model.resources import Amount, TaskRequest
from millpond.scheduling.placement.shapes import Shape
from millpond.scheduling.tenancy.cells.uses import Stake


class HoldState(IntEnum):
    """How a holding counts in the ledger."""

    NOTHING = 0
    RUNNING = 1
    FROZEN = 2
    SWAPPED = 3


NOTHING, RUNNING, FROZEN, SWAPPED = HoldState
"""Its members by themselves: a look into an enumeration takes ten times as long."""


def counted(request: TaskRequest, hold: HoldState) -> Amount:
    """What a task counts for in quotas and books, by what it still holds of what it asked for.

    A frozen task keeps its cards from others by the device memory it holds, so they count; a swapped one keeps host
    memory only.
    """
    if hold is NOTHING:
        return Amount()
    if hold is SWAPPED:
        return Amount(memory_mib=request.memory_mib)
    cpu_milli = request.cpu_milli if hold is RUNNING else 0
    cards = request.card_mib, request.card_share_milli
    return Amount(request.gpu_milli, cpu_milli, request.memory_mib, (), *cards)


class Holding:
    """What one task has of one node.

    Attributes:
        shape: what it asked for; the amounts it takes.
        devices: device indices in the cluster's arrays.
        memory_mib: device memory taken, one entry a device.
        takes_memory: whether it takes any of that.
        hold: how it counts now.
        stake: by what right it is on its cards; None until that is asked, where queues are owed cells.
        is_in_cell: whether it is in a cell that its queue is owed.
        keeps_cpu: whether it has its CPUs while it is suspended, too (``model.hardware.nodes.Node``).
        is_shared: whether it has its cards together with another such holding; changed by ``Cluster.share`` alone.
    """

    __slots__ = (
        "devices", "hold", "is_in_cell", "is_shared", "keeps_cpu", "memory_mib", "node", "shape", "stake",
        "takes_memory",
    )  # fmt: skip

    def __init__(self, node: int, shape: Shape, devices: tuple[int, ...], memory_mib: tuple[int, ...]) -> None:
        self.node = node
        self.shape = shape
        self.devices = devices
        self.memory_mib = memory_mib
        self.takes_memory = any(memory_mib)
        self.hold = NOTHING
        self.stake: Stake | None = None
        self.is_in_cell = False
        self.keeps_cpu = False
        self.is_shared = False

    def copy(self) -> Holding:
        """The same amounts of the same node, as a twin of the ledger has them."""
        twin = Holding(self.node, self.shape, self.devices, self.memory_mib)
        twin.hold = self.hold
        twin.stake, twin.is_in_cell, twin.keeps_cpu = self.stake, self.is_in_cell, self.keeps_cpu
        twin.is_shared = self.is_shared
        return twin
