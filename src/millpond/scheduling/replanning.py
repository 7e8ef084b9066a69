"""The cycle of the published preemptive orderings: look at all work, running and waiting, as if nothing ran.

Where a preemption costs nothing, all work is placed anew from an empty cluster in order of the keys, and whatever does
not keep its nodes moves (the convention of the Tiresias and Muri simulators). Where it costs something, jobs are chosen
by counting cards in order of the keys; running work that is not chosen leaves, chosen work stays where it is, and the
rest of the chosen is placed if it fits (the convention of the Lucid simulator, except that nobody is asked to leave
unless somebody else is proved to fit).
"""

from __future__ import annotations

from collections.abc import Iterable

from millpond.model.reasons import Cause
from millpond.model.workloads import JobState, TaskState
from millpond.scheduling.holdings import Hold
from millpond.scheduling.lifecycle import Trigger
from millpond.scheduling.placement.arrays import Int64Array
from millpond.scheduling.placement.filters import first_failure
from millpond.scheduling.placement.kernels import KernelSet, interpreted, lean_kernel
from millpond.scheduling.placement.shapes import Shape
from millpond.scheduling.placing import Placed, Placer
from millpond.scheduling.records import JobRecord, TaskRecord
from millpond.scheduling.state import State


@lean_kernel
def first_fitting_node(nodes: Int64Array, devices: Int64Array, count: int, shape: Int64Array) -> int:
    """The first node that the shape fits on; -1 if there is none."""
    for node in range(count):
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
        if state.settings.preemption_cost.is_free:
            self._repack(active)
        else:
            self._choose(active)

    def _repack(self, ranked: list[JobRecord]) -> None:
        """Place everything from an empty cluster; stop what lost its place or, if nothing did, start what fits."""
        state, journal = self._state, self._state.journal
        mark = journal.begin()
        self._release(record for record in ranked if record.slot >= 0)
        starts: list[tuple[JobRecord, Placed]] = []
        stops: list[JobRecord] = []
        failed: set[object] = set()
        for record in ranked:
            kind = (record.job.roles, record.job.pool)
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
                state.stop(record, Trigger.ENDED_FOR_RETRY, Cause.PREEMPTED)
            return
        for record, placed in starts:
            # Whoever stayed may hold other cards of its node than in the trial, so the cards are chosen again.
            taken = [(task, self._placer.take_on(holding.node, self._shape(record, task))) for task, holding in placed]
            self._start(record, [(task, holding) for task, holding in taken if holding is not None])

    def _place_anew(self, record: JobRecord) -> Placed:
        """Holdings on the trial ledger, first fit in order of the nodes; empty if they do not fit."""
        journal, arrays = self._state.journal, self._state.cluster.arrays
        mark = journal.begin()
        placed: Placed = []
        for task in self._unfinished(record):
            shape = self._shape(record, task)
            vector = self._placer.vector(shape)
            node = self._first_fitting(arrays.node_table, arrays.device_table, arrays.node_count, vector)
            holding = None if node < 0 else self._placer.take_on(int(node), shape)
            if holding is None:
                journal.rollback(mark)
                return []
            placed.append((task, holding))
        journal.commit()
        return placed

    def _shape(self, record: JobRecord, task: TaskRecord) -> Shape:
        return self._state.cluster.shape_of(record.job.roles[task.role_index].request, record.job.pool)

    def _choose(self, ranked: list[JobRecord]) -> None:
        """Count cards in order of the keys; prove the placement of those who come in; then ask the others to leave."""
        state, journal = self._state, self._state.journal
        left = state.cluster.gpu_capacity_milli
        incoming: list[JobRecord] = []
        leaving: list[JobRecord] = []
        for record in ranked:
            if record.gpu_milli <= left:
                left -= record.gpu_milli
                if record.slot < 0:
                    incoming.append(record)
            elif record.slot >= 0:
                leaving.append(record)
        if not incoming:
            return
        if leaving:
            mark = journal.begin()
            self._release(leaving)
            fits = any(self._placer.place(record) is not None for record in incoming)
            journal.rollback(mark)
            if fits:
                for record in leaving:
                    state.stop(record, Trigger.ENDED_FOR_RETRY, Cause.PREEMPTED)
                return
        for record in incoming:
            placed = self._placer.place(record)
            if placed is not None:
                self._start(record, placed)

    def _start(self, record: JobRecord, placed: Placed) -> None:
        """Commit a start whose holdings are taken; if some are missing, give the others back and let it wait."""
        state = self._state
        amount = state.amount_of(record, [task for task, _ in placed])
        if len(placed) < len(self._unfinished(record)) or state.queues.limiting(record.queue, amount) is not None:
            for _, holding in placed:
                state.cluster.change(holding, Hold.NOTHING)
            return
        state.queues.charge(record.queue, amount, 1)
        state.outbox.append(state.start(record, placed, Cause.FITS))

    def _unfinished(self, record: JobRecord) -> list[TaskRecord]:
        return [task for task in record.tasks if not task.state.ended]

    def _release(self, records: Iterable[JobRecord]) -> None:
        for record in records:
            for task in record.tasks:
                if task.holding is not None and task.state is TaskState.RUNNING:
                    self._state.cluster.change(task.holding, Hold.NOTHING)

    def _nodes(self, record: JobRecord) -> list[int]:
        return sorted(task.holding.node for task in record.tasks if task.holding is not None)
