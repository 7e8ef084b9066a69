"""EASY reservations: the first job of a pool that does not fit gets nodes and a time; no job behind it may delay that.

The time is the earliest at which, by the expected ends of what runs, its tasks have room, within one rack or node where
that is required; the nodes are those where the room comes first. Nodes that are closed count from when they open, and
nodes that will be closed only as far as the job ends before. Until then others may use these nodes only if they end
before. It is looked for anew when room has appeared since, and binds only those who come after its holder in the order.

Source: Mu'alem and Feitelson, "Utilization, predictability, workloads, and user runtime estimates in scheduling the IBM
SP2 with backfilling", IEEE TPDS 2001.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from millpond.scheduling.cycle.job_placement import Placer
from millpond.scheduling.elastic.gang_sizes import least_tasks
from millpond.scheduling.nodes.cordon import stays_until
from millpond.scheduling.nodes.topology_groups import required_groups
from millpond.scheduling.placement.arrays import Int64Array
from millpond.scheduling.placement.kernels import KernelSet, interpreted
from millpond.scheduling.reclaiming.roster import SLOT_SEQUENCE, FloatArray
from millpond.scheduling.reclaiming.victims import MOST_ROWS
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State

MOST_COPIES_PER_NODE = 16


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

    def reserve(self, record: JobRecord) -> Reservation | None:
        """Nodes and time for a blocked job; None when the running work never leaves enough room."""
        groups = required_groups(self.state.cluster, record.job)
        times = self._times(record, MOST_COPIES_PER_NODE if groups is None else len(record.tasks))
        if groups is not None:
            soonest = np.max([_ready(wanted, by_node, groups) for wanted, by_node in times], axis=0, initial=-np.inf)
            chosen = groups == int(soonest.argmin())
            times = [(wanted, np.where(chosen[:, None], by_node, np.inf)) for wanted, by_node in times]
        nodes: list[int] = []
        at = self.state.now
        for wanted, by_node in times:
            flat = by_node.ravel()
            if wanted > flat.size:
                return None
            order = np.argsort(flat, kind="stable")[:wanted]
            latest = float(flat[order[-1]])
            if latest == np.inf:
                return None
            at = max(at, latest)
            nodes.extend(int(place) // by_node.shape[1] for place in order)
        return Reservation(record.id, tuple(dict.fromkeys(nodes)), at)

    def _times(self, record: JobRecord, most_copies: int) -> list[tuple[int, FloatArray]]:
        """For each role: how many tasks have to start, and (nodes, copies) when each node has room for 1, 2, … ."""
        state, job = self.state, record.job
        roster, arrays = state.roster, state.cluster.arrays
        count = arrays.node_count
        ends = state.ordering.ends(roster.live, state.now)
        closed = self._open_by_hand()
        tasks = least_tasks(job, record.queued())
        found = []
        for index in range(len(job.roles)):
            wanted = sum(1 for task in tasks if task.role_index == index)
            if wanted == 0:
                continue
            shape = state.cluster.words.shapes_of(record.demand)[index]
            times = np.empty((count, min(wanted, most_copies)))
            self._room_times(
                arrays.node_table, arrays.device_table, count, self.placer.selector.vector(shape),
                (arrays.pool[:count] == shape.pool).astype(np.uint8), roster.rows, roster.row_devices,
                roster.row_memory, roster.node_head, ends, roster.slots[SLOT_SEQUENCE], state.now, times.shape[1],
                self._scratch, times,
            )  # fmt: skip
            found.append((wanted, times))
        if closed:
            arrays.node_usable[closed] = 0
        if state.cordons.by_node:
            self._postpone(record, [times for _, times in found])
        return found

    def _open_by_hand(self) -> list[int]:
        """Let the kernel see closed nodes as if they were open; returns their indices. No cache may look meanwhile."""
        cluster = self.state.cluster
        closed = [
            index
            for name in sorted(cluster.closed)
            if (index := cluster.node_index.get(name)) is not None
            and (node := cluster.nodes[index]) is not None
            and node.schedulable
        ]
        if closed:
            cluster.arrays.node_usable[closed] = 1
        return closed

    def _postpone(self, record: JobRecord, times: list[FloatArray]) -> None:
        """Room on nodes that close counts from when the job can stay there: (nodes, copies) each, changed in place."""
        state = self.state
        cordons = state.cordons
        length = stays_until(record, state.ordering, state.now) - state.now
        for name in cordons.by_node:
            index = state.cluster.node_index.get(name)
            for by_node in times if index is not None else ():
                by_node[index] = [cordons.earliest(name, float(instant), length) for instant in by_node[index]]


def _ready(wanted: int, by_node: FloatArray, groups: Int64Array) -> FloatArray:
    """(groups,) when each group has room for so many tasks; infinite for never."""
    flat, owner = by_node.ravel(), np.repeat(groups, by_node.shape[1])
    sizes = np.bincount(owner)
    order = np.lexsort((flat, owner))
    last = np.cumsum(sizes) - sizes + wanted - 1
    ready = np.full(len(sizes), np.inf)
    enough = sizes >= wanted
    ready[enough] = flat[order][last[enough]]
    return ready
