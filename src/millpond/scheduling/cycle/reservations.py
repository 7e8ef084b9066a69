"""EASY reservations: the first job of a pool that does not fit gets nodes and a time; no job behind it may delay that.

The time is the earliest at which, by the expected ends of what runs, its tasks have room, within one rack or node where
that is required; the nodes are those where the room comes first. Nodes that are closed count from when they open, and
nodes that will be closed only as far as the job ends before. Until then others may use these nodes only if they end
before, or take what it will not need: with them there, it has room as soon. It is looked for anew when room has
appeared since, and binds only those who come after its holder in the order.

Source: Mu'alem and Feitelson, "Utilization, predictability, workloads, and user runtime estimates in scheduling the IBM
SP2 with backfilling", IEEE TPDS 2001.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from millpond.model.workloads import Priority
from millpond.scheduling.cycle.job_placement import Placed, Placer, spacing_of
from millpond.scheduling.cycle.places_in_cells import cells_would_do
from millpond.scheduling.cycle.tried_places import Tries, nodes_of, try_places
from millpond.scheduling.elastic.gang_sizes import least_tasks
from millpond.scheduling.nodes.cordon import stays_until
from millpond.scheduling.nodes.topology_groups import required_groups
from millpond.scheduling.placement.arrays import FloatArray, Int64Array, NodeMask
from millpond.scheduling.placement.kernels import KernelSet, interpreted
from millpond.scheduling.placement.shapes import Shape
from millpond.scheduling.placement.spacing import Spacing
from millpond.scheduling.reclaiming.roster import SLOT_PRIORITY, SLOT_SEQUENCE
from millpond.scheduling.reclaiming.searching import Plan
from millpond.scheduling.reclaiming.victims import MOST_ROWS
from millpond.scheduling.records import JobRecord, TaskRecord
from millpond.scheduling.state import State

MOST_COPIES_PER_NODE = 16

TRIES_BESIDE = 16
"""So many places on reserved nodes one walk tries in vain: a bound on work."""

SWITCHING = 2.0
"""Another node takes the place of one that is kept if it needs less than so many times less time."""


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
        self._tries = Tries(TRIES_BESIDE)
        self._soonest: dict[Reservation, float] = {}
        self.use_kernels(interpreted())

    def use_kernels(self, kernels: KernelSet) -> None:
        """Run on other kernels from now on; reservations are the same."""
        self._room_times = kernels.call("room_times")

    def begin(self) -> None:
        """A walk begins."""
        self._tries = Tries(TRIES_BESIDE)
        self._soonest.clear()

    def place_beside(
        self, kept: Reservation, mask: NodeMask | None, place: Callable[[NodeMask | None], Placed | None]
    ) -> Placed | None:
        """Take holdings on reserved nodes if the job they are kept for has room as soon; None if not.

        Args:
            mask: (nodes,), 0 keeps a node out; the reserved ones may be open.
            place: takes holdings on the nodes of a mask, if there is room.
        """
        soonest = self._soonest_of(kept)
        if soonest == np.inf:
            return None

        def in_the_way(placed: Placed) -> list[int]:
            return [] if self._soonest_on(kept) <= soonest else nodes_of(placed)

        return try_places(self.state.cluster, place, mask, in_the_way, self._tries)

    def plan_beside(self, kept: Reservation, find: Callable[[Callable[[Plan], bool]], Plan | None]) -> Plan | None:
        """A plan on reserved nodes, if the job that they are kept for has room as soon.

        Args:
            find: looks for one that the function which it is given accepts.
        """
        if not self._tries.left or (soonest := self._soonest_of(kept)) == np.inf:
            return None
        self._tries.left -= 1

        def keeps_time(plan: Plan) -> bool:
            gone = [record.slot for record in (*plan.leaving, *(each for each, _ in plan.shrunk)) if record.slot >= 0]
            return self._soonest_on(kept, gone) <= soonest

        return find(keeps_time)

    def _soonest_of(self, kept: Reservation) -> float:
        """When the job had room on its nodes as this walk first found them, not before its reservation says."""
        if kept not in self._soonest:
            self._soonest[kept] = max(self._soonest_on(kept), kept.at)
        return self._soonest[kept]

    def _soonest_on(self, kept: Reservation, gone: Sequence[int] = ()) -> float:
        """When a job has room on the nodes reserved for it; infinite for never, or where roles could be in its way.

        Args:
            gone: slots of the roster whose room counts as free already.
        """
        record = self.state.jobs[kept.job]
        times = self._times(record, kept.nodes, gone=gone)
        if len(times) != 1:
            return np.inf
        wanted, by_node = times[0]
        spacing = spacing_of(self.state.cluster, record.job)
        if spacing is not None:
            places = _soonest_apart(wanted, by_node, self._waiting_roles(record)[0], spacing)
            return max((float(by_node.flat[place]) for place in places), default=np.inf)
        return float(np.partition(by_node.ravel(), wanted - 1)[wanted - 1]) if wanted <= by_node.size else np.inf

    def reserve(self, record: JobRecord, kept: Sequence[int] = ()) -> Reservation | None:
        """Nodes and time for a blocked job; None when the running work never leaves enough room.

        Args:
            kept: the nodes it had so far. Others replace them only where they promise room in far less time, and with
                good certainty: what kept nodes have gained by being kept is lost then, and a node on which several jobs
                of unknown length run is empty later than each of them is expected to end.
        """
        groups = required_groups(self.state.cluster, record.job)
        times = self._times(record, kept=kept)
        if kept:
            others = np.ones(self.state.cluster.arrays.node_count, dtype=np.bool_)
            others[[node for node in kept if node < len(others)]] = False
            for _, by_node in times:
                by_node[others] += (SWITCHING - 1.0) * (by_node[others] - self.state.now)
        if groups is not None:
            soonest = np.max([_ready(wanted, by_node, groups) for wanted, by_node in times], axis=0, initial=-np.inf)
            chosen = groups == int(soonest.argmin())
            times = [(wanted, np.where(chosen[:, None], by_node, np.inf)) for wanted, by_node in times]
        nodes: list[int] = []
        at = self.state.now
        spacing = spacing_of(self.state.cluster, record.job)
        for index, (wanted, by_node) in zip(self._waiting_roles(record), times, strict=True):
            if wanted > by_node.size:
                return None
            if spacing is None:
                order = np.argsort(by_node, axis=None, kind="stable")[:wanted].tolist()
            else:
                order = _soonest_apart(wanted, by_node, index, spacing)
            latest = max((float(by_node.flat[place]) for place in order), default=np.inf)
            if latest == np.inf:
                return None
            at = max(at, latest)
            nodes.extend(place // by_node.shape[1] for place in order)
        return Reservation(record.id, tuple(dict.fromkeys(nodes)), at)

    def soonest_by_node(self, record: JobRecord, only: Sequence[int]) -> FloatArray:
        """(nodes,) when each has room for a job of one task; infinite for never.

        Args:
            only: the nodes that are asked about; one at least.
        """
        ((_, by_node),) = self._times(record, only, each=True)
        return by_node[:, 0]

    def _waiting_roles(self, record: JobRecord) -> list[int]:
        """By index, the roles of which tasks have to start."""
        return sorted({task.role_index for task in least_tasks(record.job, record.queued())})

    def _times(
        self,
        record: JobRecord,
        only: Sequence[int] = (),
        kept: Sequence[int] = (),
        gone: Sequence[int] = (),
        *,
        each: bool = False,
    ) -> list[tuple[int, FloatArray]]:
        """For each role: how many tasks have to start, and (nodes, copies) when each node has room for 1, 2, … .

        Args:
            only: the nodes to be looked at; none: all of its pool.
            kept: it has these so far. Their instants are wanted, and those of other nodes with good certainty.
            gone: slots of the roster that leave no more room than they have left.
            each: every node's instant is wanted, not only those before the soonest that was found.
        """
        state, job = self.state, record.job
        most_copies = MOST_COPIES_PER_NODE if required_groups(state.cluster, job) is None else len(record.tasks)
        arrays, ends = state.cluster.arrays, self._ends(kept, gone)
        count = arrays.node_count
        closed = self._open_by_hand()
        tasks = least_tasks(job, record.queued())
        is_free = not (job.together_required or job.spacing or state.cordons.has_spans)
        is_single = len(tasks) == 1 and is_free and not each
        allowed = self._allowed_nodes(record, tasks)
        found = []
        for index in self._waiting_roles(record):
            wanted = sum(1 for task in tasks if task.role_index == index)
            shape = state.cluster.words.shapes_of(record.demand)[index]
            mask = self.placer.selector.may_ever_hold(shape).astype(np.uint8)
            if only:
                looked_at = np.zeros(count, dtype=np.uint8)
                looked_at[list(only)] = 1
                mask &= looked_at
            if allowed is not None:
                mask &= allowed
            copies = min(wanted, most_copies)
            times = self._times_on(mask, shape, ends, copies, soonest_only=is_single)
            if kept and is_single:
                of_kept = np.zeros(count, dtype=np.uint8)
                of_kept[[node for node in kept if node < count]] = 1
                times = np.minimum(times, self._times_on(mask & of_kept, shape, ends, copies, soonest_only=False))
            found.append((wanted, times))
        if closed:
            arrays.node_usable[closed] = 0
        if state.cordons.has_spans:
            self._postpone(record, [times for _, times in found])
        return found

    def _ends(self, kept: Sequence[int], gone: Sequence[int]) -> FloatArray:
        """(slots,) when running work makes room by its end, see ``_times``."""
        state, roster = self.state, self.state.roster
        ends = state.ordering.time_left.ends(roster.live, state.now)
        if roster.least_priority() == Priority.BACKGROUND:
            ends = np.where(roster.live[SLOT_PRIORITY] == Priority.BACKGROUND, state.now, ends)  # it leaves when asked
        if gone:
            ends = ends.copy()
            ends[list(gone)] = np.inf
        if kept:
            stay, soonest = roster.slots_on(np.array(kept, dtype=np.int64)), ends
            ends = state.ordering.time_left.cautious_ends(roster.live, state.now)
            ends[stay] = soonest[stay]
        return ends

    def _times_on(
        self, mask: NodeMask, shape: Shape, ends: FloatArray, copies: int, *, soonest_only: bool
    ) -> FloatArray:
        """(nodes, copies) when each node of a mask has room for 1, 2, … tasks, see ``victims.room_times``."""
        roster, arrays = self.state.roster, self.state.cluster.arrays
        times = np.empty((arrays.node_count, copies))
        self._room_times(
            arrays.node_table, arrays.device_table, arrays.node_count, self.placer.selector.vector(shape), mask,
            roster.rows, roster.row_devices, roster.row_memory, roster.node_head, ends, roster.slots[SLOT_SEQUENCE],
            self.state.now, copies, soonest_only, self._scratch, times,
        )  # fmt: skip
        return times

    def _allowed_nodes(self, record: JobRecord, tasks: Sequence[TaskRecord]) -> NodeMask | None:
        """(nodes,), 0 where a job finds no place whoever leaves: by its choice, its models, or cells that are owed."""
        state = self.state
        allowed = state.entitlements.allowed_nodes(record, tasks)
        unowed = state.cluster.cells.mask(record)
        if unowed is None or cells_would_do(state, record):
            return allowed
        return unowed if allowed is None else allowed & unowed

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
        length = stays_until(record, state.ordering.time_left, state.now) - state.now
        for name in cordons.concerned:
            index = state.cluster.node_index.get(name)
            for by_node in times if index is not None else ():
                by_node[index] = [cordons.earliest(name, float(instant), length) for instant in by_node[index]]


def _soonest_apart(wanted: int, by_node: FloatArray, role: int, spacing: Spacing) -> list[int]:
    """Places of a (nodes, copies) table that are ready first, one after another as the rules of a gang leave it.

    None at all where they leave no place to one of its tasks.
    """
    left, chosen = by_node.copy(), []
    for _ in range(wanted):
        mask = spacing.within(role, None)
        times = left if mask is None else np.where(mask[:, None] != 0, left, np.inf)
        place = int(np.argmin(times))
        if times.flat[place] == np.inf:
            return []
        chosen.append(place)
        spacing.take(role, place // by_node.shape[1])
        left.flat[place] = np.inf
    return chosen


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
