"""What can be had without ending running work: tasks that elastic gangs can spare, suspended jobs, and kept places.

An elastic gang goes on without its last tasks, and gets them back when there is room again. A suspended job uses no
card, but it still holds device memory (frozen) or host memory (swapped); asked to leave, it ends and waits for another
run. A place that is kept for a look inside holds cards for work that has failed; nothing that its job was promised
stands against giving it back. All are asked before running work is ended, by the same rules about what may be asked
at all.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass

from millpond.model.states import JobState, TaskState
from millpond.scheduling.elastic.gang_sizes import spare_tasks
from millpond.scheduling.ledger.holdings import HoldState
from millpond.scheduling.placement.arrays import NodeMask
from millpond.scheduling.reclaiming.roster import SLOT_PROTECTED_UNTIL
from millpond.scheduling.records import JobRecord, TaskRecord
from millpond.scheduling.state import State
from millpond.scheduling.suspension.suspension import is_suspending
from millpond.scheduling.tenancy.cells.stakes import is_beside_cells


@dataclass(frozen=True, slots=True)
class ShrinkPart:
    """Tasks that leave together.

    Attributes:
        tasks: all of a suspended job or of one whose place is kept, or one of an elastic gang.
        holds: how each counted before it was released.
    """

    record: JobRecord
    tasks: tuple[TaskRecord, ...]
    holds: tuple[HoldState, ...]

    @property
    def is_whole(self) -> bool:
        """Whether the job ends by it."""
        return _leaves_whole(self.record)


class Shrink:
    """Finds the parts that may leave, releases them on the trial ledger, and gives back what is not needed."""

    def __init__(self, state: State) -> None:
        self._state = state

    def candidates(self, may_ask: Callable[[JobRecord], bool], leaving: Container[str]) -> list[ShrinkPart]:
        """Parts of all jobs that may be asked, the dearest first.

        Args:
            leaving: jobs that were asked in this walk already.
        """
        state = self._state
        stretched = [record for record in state.elastic.values() if record.state is JobState.RUNNING]
        jobs = [
            record
            for record in (*state.suspended.values(), *state.kept.values(), *stretched)
            if record.id not in leaving and self._is_open(record) and may_ask(record) and not self._is_owed(record)
        ]
        jobs.sort(
            key=lambda record: (
                record.kept is not None,
                -record.job.priority,
                record.started_at is not None,
                record.started_at or 0.0,
                record.sequence,
            )
        )
        return [part for record in jobs for part in self._parts_of(record)]

    def _is_open(self, record: JobRecord) -> bool:
        """Whether nothing that was promised to the job forbids to ask it."""
        job, state = record.job, self._state
        if record.kept is not None:
            return record.state is JobState.RUNNING  # else its mates are being ended still
        if job.rest_preemptible and record.started_at is not None:
            return record.state is JobState.RUNNING and record.started_at + state.minimum_run_s(record) <= state.now
        if record.state is JobState.RUNNING and record.slot >= 0:
            return bool(state.roster.slots[SLOT_PROTECTED_UNTIL, record.slot] <= state.now)
        return (
            record.state is JobState.SUSPENDED
            and job.preemptible
            and record.preemptions < job.preemption_budget
            and record.attained_s - record.attained_before_s >= state.minimum_run_s(record)
            and not is_suspending(state, record)
        )

    def _is_owed(self, record: JobRecord) -> bool:
        """Whether a job is as a whole in cells of its queue, where it leaves for no other."""
        return (
            record.kept is None
            and self._state.cluster.cells.is_in_cells(record)
            and not any(task.holding is not None and is_beside_cells(task.holding) for task in record.tasks)
        )

    def _parts_of(self, record: JobRecord) -> Iterator[ShrinkPart]:
        if _leaves_whole(record):
            holders = tuple(task for task in record.tasks if task.holding is not None)
            yield ShrinkPart(record, holders, _holds(holders))
            return
        running = [task for task in record.tasks if task.state is TaskState.RUNNING]
        for task in spare_tasks(record.job, running):
            if task.holding is not None and task.holding.is_in_cell:
                continue
            yield ShrinkPart(record, (task,), _holds((task,)))

    def release(
        self,
        parts: list[ShrinkPart],
        still: Callable[[JobRecord], bool],
        pool: str,
        mask: NodeMask | None,
        under: str = "",
    ) -> list[ShrinkPart]:
        """Take parts off the trial ledger, the cheapest first; returns those taken, the dearest first.

        Args:
            still: asked of each when its turn comes; those that left before may have changed the answer.
            mask: (nodes,), parts that have nothing on nodes of the pool with 1 are left alone.
            under: unless they count for the limit of this queue.
        """
        state, cluster = self._state, self._state.cluster
        taken = []
        for part in reversed(parts):
            holdings = [task.holding for task in part.tasks if task.holding is not None]
            near = bool(under and state.queues.is_below(part.record.queue, under)) or any(
                cluster.is_of_pool(holding.node, pool) and (mask is None or mask[holding.node]) for holding in holdings
            )
            # Work on a node that may not be used makes no room there by leaving.
            if not near or any(cluster.is_overdrawn(holding) for holding in holdings) or not still(part.record):
                continue
            state.charge(part.record, state.amounts.held(part.record, part.tasks), -1)
            for holding in holdings:
                cluster.change(holding, HoldState.NOTHING)
            taken.append(part)
        taken.reverse()
        return taken

    def give_back(self, parts: list[ShrinkPart], is_enough: Callable[[], bool]) -> list[ShrinkPart]:
        """Let parts hold again what they held where that is still possible, the dearest first; returns the others.

        Args:
            is_enough: whether the limits above the job they made room for still admit it.
        """
        state, cluster = self._state, self._state.cluster
        needed = []
        for part in parts:
            mark = state.journal.begin()
            pairs = [(task.holding, hold) for task, hold in zip(part.tasks, part.holds, strict=True)]
            for holding, hold in pairs:
                if holding is not None:
                    cluster.change(holding, hold)
            state.charge(part.record, state.amounts.held(part.record, part.tasks), 1)
            if any(holding is not None and cluster.is_overdrawn(holding) for holding, _ in pairs) or not is_enough():
                state.journal.rollback(mark)
                needed.append(part)
            else:
                state.journal.commit()
        return needed


def _leaves_whole(record: JobRecord) -> bool:
    return record.state is JobState.SUSPENDED or record.kept is not None


def _holds(tasks: tuple[TaskRecord, ...]) -> tuple[HoldState, ...]:
    return tuple(HoldState.NOTHING if task.holding is None else task.holding.hold for task in tasks)
