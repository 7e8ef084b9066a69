"""The cycle of the published preemptive orderings: look at all work, running and waiting, as if nothing ran.

Where a preemption costs nothing, all work is placed anew from an empty cluster in order of the keys, and whatever does
not keep its nodes moves (the convention of the Tiresias and Muri simulators). Where it costs something, jobs are chosen
by counting cards in order of the keys; running work that is not chosen leaves, chosen work stays where it is, and the
rest of the chosen is placed if it fits (the convention of the Lucid simulator, except that work is asked to leave
only if other work is proved to fit).

The published systems know one queue of jobs that may all be moved at any time. Here what a job was promised holds all
the same: work that is protected from preemption keeps its place, gangs that must lie together do so, and queues keep
their limits. Work in cells that its queue is owed stays in them, as protected work does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from millpond.model.reasons import Cause
from millpond.model.resources import Amount
from millpond.model.states import JobState, TaskState
from millpond.scheduling import runs
from millpond.scheduling.cycle.job_placement import Placed, Placer, spacing_of
from millpond.scheduling.elastic.gang_sizes import most_tasks, spare_tasks
from millpond.scheduling.ledger.holdings import HoldState
from millpond.scheduling.lifecycle import Trigger
from millpond.scheduling.nodes.topology_groups import required_groups
from millpond.scheduling.placement.arrays import Int64Array, NodeMask
from millpond.scheduling.placement.filters import first_failure
from millpond.scheduling.placement.kernels import KernelSet, interpreted, lean_kernel
from millpond.scheduling.placement.shapes import Shape
from millpond.scheduling.reclaiming.roster import SLOT_PROTECTED_UNTIL
from millpond.scheduling.records import JobRecord, TaskRecord
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.admission import admitted_tasks, is_admitted

_ANYWHERE: NodeMask = np.zeros(0, dtype=np.uint8)


@lean_kernel
def first_fitting_node(nodes: Int64Array, devices: Int64Array, count: int, shape: Int64Array, mask: NodeMask) -> int:
    """The first node that the shape fits on; -1 if there is none. ``mask``: 0 keeps a node out; empty for none."""
    for node in range(count):
        if mask.shape[0] != 0 and mask[node] == 0:
            continue
        if first_failure(nodes, devices, node, shape) == 0:
            return node
    return -1


class Replanner:
    """Replans one state."""

    def __init__(self, state: State, placer: Placer) -> None:
        self._state = state
        self._placer = placer
        self.use_kernels(interpreted())

    def use_kernels(self, kernels: KernelSet) -> None:
        """Run on other kernels from now on; decisions are the same."""
        self._first_fitting = kernels.call("first_fitting_node")

    def is_due(self, now: float) -> bool:
        """Whether replanning happens at this instant at all; some systems do it only at multiples of a period."""
        period = self._state.settings.replan_period_s
        return period <= 0 or now % period == 0

    def next_due(self, now: float) -> float | None:
        """The next multiple of the period; None when there is no period."""
        period = self._state.settings.replan_period_s
        return None if period <= 0 else (now // period + 1.0) * period

    def replan(self) -> None:
        """Start, stop and move so that the work with the lowest keys runs."""
        state = self._state
        if not self.is_due(state.now):
            return
        active = [*state.waiting, *(r for r in state.running.values() if r.state is JobState.RUNNING)]
        active = state.ordering.arrange(active, state.now)
        active.sort(key=lambda record: record.job.is_background)
        if state.settings.preemption_cost.is_free:
            self._repack([record for record in active if not self._is_protected(record)])
        else:
            self._choose(active)

    def _is_protected(self, record: JobRecord) -> bool:
        """Whether running work may not be asked to leave now; kept places are not asked here."""
        if record.slot < 0:
            return record.kept is not None
        if self._state.cluster.cells.is_in_cells(record):
            return True
        return bool(self._state.roster.slots[SLOT_PROTECTED_UNTIL, record.slot] > self._state.now)

    # ---- where a preemption costs nothing -----------------------------------------------------------------------

    def _repack(self, ranked: list[JobRecord]) -> None:
        """Place everything from an empty cluster; stop what lost its place or, if nothing did, start what fits."""
        state, journal = self._state, self._state.journal
        mark = journal.begin()
        self._release(record for record in ranked if record.slot >= 0)
        starts: list[tuple[JobRecord, Placed]] = []
        stops: list[JobRecord] = []
        failed: set[object] = set()
        for record in ranked:
            job = record.job
            together = (job.together, job.together_required, job.spacing)
            kind = (job.roles, job.pool, job.queue, together, len(self._tasks(record)))
            placed = [] if kind in failed else self._place_anew(record)
            if not placed:
                failed.add(kind)
            if record.slot >= 0:
                if sorted(holding.node for _, holding in placed) != self._nodes(record):
                    stops.append(record)
            elif placed:
                starts.append((record, placed))
        journal.rollback(mark)
        if stops:
            for record in stops:
                runs.stop(state, record, Trigger.ENDED_FOR_RETRY, Cause.PREEMPTED)
            return
        for record, placed in starts:
            # Work that stayed may hold other cards of its node than in the trial, so the cards are chosen again.
            taken = [(task, self._placer.take_on(holding.node, self._shape(record, task))) for task, holding in placed]
            found = [(task, holding) for task, holding in taken if holding is not None]
            is_whole = len(found) == len(placed) and self._settles(record, found)
            if is_whole and state.entitlements.admits(record, state.amounts.of_placed(record, found)):
                self._start(record, found)
            else:
                for _, holding in found:
                    state.cluster.change(holding, HoldState.NOTHING)

    def _place_anew(self, record: JobRecord) -> Placed:
        """Holdings on the trial ledger, first fit in order of the nodes; empty if they do not fit."""
        for tasks in self._sizes(record):
            for mask in self._places(record, tasks):
                placed = self._first_fit(record, tasks, mask)
                if placed:
                    return placed
        return []

    def _sizes(self, record: JobRecord) -> Iterator[list[TaskRecord]]:
        """The tasks to place: all of them; of an elastic gang then fewer and fewer, down to its minimum."""
        tasks = self._tasks(record)
        yield tasks
        spared = spare_tasks(record.job, tasks)
        while spared:
            last = spared.pop()
            tasks = [task for task in tasks if task is not last]
            yield tasks

    def _places(self, record: JobRecord, tasks: Sequence[TaskRecord]) -> Iterator[NodeMask]:
        """Where a gang may lie: anywhere, or in one rack or on one node after the other if it must lie together."""
        groups = required_groups(self._state.cluster, record.job)
        if groups is None or len(tasks) == 1:
            yield _ANYWHERE
            return
        for group in dict.fromkeys(groups.tolist()):
            yield (groups == group).astype(np.uint8)

    def _first_fit(self, record: JobRecord, tasks: Sequence[TaskRecord], mask: NodeMask) -> Placed:
        journal, arrays = self._state.journal, self._state.cluster.arrays
        mark = journal.begin()
        allowed = self._state.entitlements.allowed_nodes(record, tasks)
        if allowed is not None:
            mask = mask & allowed if len(mask) else allowed
        placed: Placed = []
        spacing = spacing_of(self._state.cluster, record.job)
        for task in tasks:
            shape = self._shape(record, task)
            vector = self._placer.selector.vector(shape)
            allowed = mask if spacing is None else spacing.within(task.role_index, mask if len(mask) else None)
            node = self._first_fitting(
                arrays.node_table, arrays.device_table, arrays.node_count, vector,
                _ANYWHERE if allowed is None else allowed,
            )  # fmt: skip
            holding = None if node < 0 else self._placer.take_on(int(node), shape)
            if holding is None:
                journal.rollback(mark)
                return []
            placed.append((task, holding))
            if spacing is not None:
                spacing.take(task.role_index, int(node))
        if not is_admitted(self._state, record, tasks) or not self._settles(record, placed):
            journal.rollback(mark)
            return []
        if self._state.has_bounds:
            self._charge(record, self._state.amounts.of_placed(record, placed), 1)
        journal.commit()
        return placed

    # ---- where it costs something -------------------------------------------------------------------------------

    def _choose(self, ranked: list[JobRecord]) -> None:
        """Count cards in order of the keys; prove the placement of those who come in; then ask the others to leave."""
        journal = self._state.journal
        left = self._capacity_milli()
        for record in ranked:
            if self._is_protected(record):
                left[record.job.pool] -= self._counted_milli(record)
        incoming: list[JobRecord] = []
        leaving: list[JobRecord] = []
        for record in ranked:
            if self._is_protected(record):
                continue
            its_left = left.get(record.job.pool, 0)
            counted_milli = self._counted_milli(record, its_left)
            if counted_milli <= its_left:
                left[record.job.pool] = its_left - counted_milli
                if record.slot < 0:
                    incoming.append(record)
            elif record.slot >= 0:
                leaving.append(record)
        if not incoming:
            return
        if leaving:
            mark = journal.begin()
            self._release(leaving)
            fits = any(self._place_admitted(record) is not None for record in incoming)
            journal.rollback(mark)
            if fits:
                for record in leaving:
                    runs.stop(self._state, record, Trigger.ENDED_FOR_RETRY, Cause.PREEMPTED)
                return
        for record in incoming:
            placed = self._place_admitted(record)
            if placed is not None:
                self._start(record, placed)

    def _counted_milli(self, record: JobRecord, left_milli: int = 0) -> int:
        """How much work counts for: an elastic gang as large as it runs, or as what is left allows if it waits."""
        if not record.elastic:
            return record.gpu_milli
        tasks = self._tasks(record)
        if record.slot < 0:
            tasks = most_tasks(record.job, tasks, lambda some: record.amount_of(some).gpu_milli <= left_milli) or tasks
        return record.amount_of(tasks).gpu_milli

    def _capacity_milli(self) -> dict[str, int]:
        """Allocatable compute, by pool."""
        cluster = self._state.cluster
        return {pool: cluster.capacity.gpu_milli_of(pool) for pool in cluster.pools}

    def _place_admitted(self, record: JobRecord) -> Placed | None:
        """Holdings by the chosen placement, if there is room and the job's queue may hold so much more."""
        tasks = admitted_tasks(self._state, record)
        mark = self._state.journal.begin()
        placed = self._placer.place(record, self._state.cluster.cells.mask(record), tasks=tasks) if tasks else None
        if placed is None or not self._settles(record, placed):
            self._state.journal.rollback(mark)
            return None
        self._state.journal.commit()
        return placed

    # ---- both ---------------------------------------------------------------------------------------------------

    def _start(self, record: JobRecord, placed: Placed) -> None:
        self._charge(record, self._state.amounts.of_placed(record, placed), 1)
        self._state.outbox.append(runs.start(self._state, record, placed, Cause.FITS))

    def _settles(self, record: JobRecord, placed: Placed) -> bool:
        return self._state.settle(record, [holding for _, holding in placed])

    def _charge(self, record: JobRecord, amount: Amount, sign: int) -> None:
        self._state.charge(record, amount, sign)
        self._state.limits.count(record, sign)

    def _release(self, records: Iterable[JobRecord]) -> None:
        """On the trial ledger, running work has left."""
        for record in records:
            held = self._tasks(record)
            for task in held:
                if task.holding is not None:
                    self._state.cluster.change(task.holding, HoldState.NOTHING)
            if self._state.has_bounds:
                self._charge(record, self._state.amounts.asked(record, held), -1)

    def _tasks(self, record: JobRecord) -> list[TaskRecord]:
        """The tasks of its run, or of the run that it waits for."""
        if record.slot < 0:
            return record.queued()
        return [task for task in record.tasks if task.state is TaskState.RUNNING]

    def _shape(self, record: JobRecord, task: TaskRecord) -> Shape:
        return self._state.cluster.words.shapes_of(record.demand)[task.role_index]

    def _nodes(self, record: JobRecord) -> list[int]:
        return sorted(task.holding.node for task in record.tasks if task.holding is not None)
