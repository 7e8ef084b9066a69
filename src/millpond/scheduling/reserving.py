"""EASY reservations: the first job that does not fit gets nodes and a time; nobody behind it may delay that.

The time is the earliest at which, by the expected ends of what runs, its tasks have room; the nodes are those where the
room comes first. Until then others may use these nodes only if they end before. It is looked for anew when room has
appeared since, and binds only those who come after its holder in the order.

Source: Mu'alem and Feitelson, "Utilization, predictability, workloads, and user runtime estimates in scheduling the IBM
SP2 with backfilling", IEEE TPDS 2001.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from millpond.model.workloads import TaskState
from millpond.scheduling.placement.kernels import KernelSet, interpreted
from millpond.scheduling.placing import NodeMask, Placer
from millpond.scheduling.reclaiming.roster import SLOT_SEQUENCE
from millpond.scheduling.reclaiming.victims import MOST_ROWS
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State

MOST_COPIES_PER_NODE = 16
_NO_MASK: NodeMask = np.zeros(0, dtype=np.uint8)


@dataclass(frozen=True, slots=True)
class Reservation:
    """Room kept for one job.

    Attributes:
        job: for whom.
        nodes: which nodes are kept.
        at: when the room should be there, by what is expected.
    """

    job: str
    nodes: tuple[int, ...]
    at: float


class Reserver:
    """Finds reservations on a state."""

    def __init__(self, state: State, placer: Placer) -> None:
        self.state = state
        self.placer = placer
        self._scratch = np.zeros(MOST_ROWS, dtype=np.int64)
        self.use_kernels(interpreted())

    def use_kernels(self, kernels: KernelSet) -> None:
        """Run on other kernels from now on; reservations are the same."""
        self._room_times = kernels.call("room_times")

    def reserve(self, record: JobRecord, mask: NodeMask | None) -> Reservation | None:
        """Nodes and time for a blocked job; None when the running work never leaves enough room."""
        state = self.state
        roster, arrays = state.roster, state.cluster.arrays
        ends = state.ordering.ends(roster.slots[:, : roster.used], state.now)
        nodes: list[int] = []
        at = state.now
        for index, role in enumerate(record.job.roles):
            wanted = sum(1 for task in record.tasks if task.role_index == index and task.state is TaskState.QUEUED)
            if wanted == 0:
                continue
            shape = state.cluster.shape_of(role.request, record.job.pool)
            copies = min(wanted, MOST_COPIES_PER_NODE)
            times = np.empty((arrays.node_count, copies))
            self._room_times(
                arrays.node_table, arrays.device_table, arrays.node_count, self.placer.vector(shape),
                _NO_MASK if mask is None else mask, roster.rows, roster.row_devices, roster.row_memory,
                roster.node_head, ends, roster.slots[SLOT_SEQUENCE], state.now, copies, self._scratch, times,
            )  # fmt: skip
            flat = times.ravel()
            if wanted > flat.size:
                return None
            order = np.argsort(flat, kind="stable")[:wanted]
            latest = float(flat[order[-1]])
            if latest == np.inf:
                return None
            at = max(at, latest)
            nodes.extend(int(place) // copies for place in order)
        return Reservation(record.id, tuple(dict.fromkeys(nodes)), at)
