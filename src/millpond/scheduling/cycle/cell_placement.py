"""Jobs of queues that are owed cells go to the very cards that these give them; others keep off what is owed.

Where work that may be asked to leave is on these cards, the plan says who leaves; nobody is asked without it. Work that
cannot leave, of whomever, stays off all cards whose loss would leave less than all queues are owed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from millpond.model.reasons import Cause
from millpond.model.workloads import Priority
from millpond.scheduling.cycle.job_placement import NodeMask, Placed
from millpond.scheduling.ledger.holdings import NOTHING, RUNNING
from millpond.scheduling.reclaiming.attempts import hold_all
from millpond.scheduling.reclaiming.plans import Planner
from millpond.scheduling.reclaiming.searching import Plan, softened
from millpond.scheduling.reclaiming.suspend_instead import ASKED_PER_CYCLE
from millpond.scheduling.records import JobRecord, TaskRecord
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.cells.allocator import CellRequest

TRIES = 16
"""How many machines a search passes over whose cells do not do: a bound on work."""


class CellPlacer:
    """Places jobs in cells on one state."""

    def __init__(self, state: State, planner: Planner) -> None:
        self._state = state
        self._planner = planner
        self._book = state.cluster.cells

    def serves(self, record: JobRecord) -> bool:
        """Whether a job is of a queue that is owed cells, or of one below it, and takes whole cards alone."""
        return bool(self._book.clusters_of(record.queue)) and all(
            shape.whole_cards for shape in self._state.cluster.words.shapes_of(record.demand)
        )

    def plan(self, record: JobRecord, tasks: Sequence[TaskRecord], mask: NodeMask | None) -> Plan | None:
        """The place of a job's tasks in its cells, taken on the ledger, with those who leave for it; None if none is.

        Args:
            mask: (nodes,), 0 keeps a node out.
        """
        state, journal = self._state, self._state.journal
        for _ in range(TRIES):
            placed = self._find(record, tasks, mask)
            if placed is None:
                return None
            mark = journal.begin()
            plan, refused = self._take(record, placed)
            if plan is not None:
                journal.commit()
                return plan
            journal.rollback(mark)
            mask = np.ones(state.cluster.arrays.node_count, dtype=np.uint8) if mask is None else mask.copy()
            mask[list(refused)] = 0
        return None

    def _find(self, record: JobRecord, tasks: Sequence[TaskRecord], mask: NodeMask | None) -> Placed | None:
        """Holdings in cells, not taken yet, whoever is there."""
        cluster, book = self._state.cluster, self._book
        shapes = [cluster.words.shapes_of(record.demand)[task.role_index] for task in tasks]
        models = {record.job.roles[task.role_index].request.models for task in tasks}
        request = CellRequest(
            record.id,
            book.clusters_of(record.queue),
            tuple(shape.devices for shape in shapes),
            next(iter(models)) if len(models) == 1 else (),
            None,
            record.job.priority,
            preempts=False,
        )
        found = book.place_of(request, record.job.pool, mask)
        if found is None:
            return None
        placed = []
        for task, shape, (node, devices) in zip(tasks, shapes, found, strict=True):
            placed.append((task, cluster.holding(node, shape, devices)))
        return placed

    def _take(self, record: JobRecord, placed: Placed) -> tuple[Plan | None, set[int]]:
        """Take a place off those who are there; else the nodes on which that cannot be."""
        state, cluster = self._state, self._state.cluster
        victims, refused = self._visitors(record, placed)
        if refused:
            return None, refused
        for victim in victims:
            hold_all(state, victim, NOTHING)
        for _, holding in placed:
            self._book.enlist_new(record, holding)
            cluster.change(holding, RUNNING)
            if not holding.is_in_cell or cluster.is_overdrawn(holding):
                refused.add(holding.node)
        if refused:
            return None, refused
        asked_later: tuple[JobRecord, ...] = ()
        if cluster.pools[record.job.pool].suspends and len(victims) > ASKED_PER_CYCLE:
            asked_later, victims = tuple(victims), []
        ways = softened(state, record, [task for task, _ in placed], victims)
        plan = Plan(record, tuple(victims), (), (), placed, Cause.RECLAIMED, False, ways, asked_later)
        self._planner.leave(plan)
        return plan, refused

    def _visitors(self, record: JobRecord, placed: Placed) -> tuple[list[JobRecord], set[int]]:
        """Who has to leave these cards, and on which nodes somebody does who may not be asked."""
        roster, by_device = self._state.roster, {d: holding for _, holding in placed for d in holding.devices}
        if not any(self._book.has_visitors(holding) for _, holding in placed):
            return [], set()
        nodes = np.array(sorted({holding.node for _, holding in placed}), dtype=np.int64)
        free = self._planner.unprotected((Priority.BACKGROUND, Priority.CRITICAL))
        left = {device for device in by_device if self._book.is_visited(device)}
        victims, refused = [], set[int]()
        for slot in roster.slots_on(nodes).tolist():
            other = roster.records[slot]
            on_cards = [] if other is None else [each for each in _devices(other) if each in by_device]
            if other is None or not on_cards:
                continue
            left.difference_update(on_cards)
            if free[slot] and self._gives_way(other, record):
                victims.append(other)
            else:
                refused.update(by_device[device].node for device in on_cards)
        refused.update(by_device[device].node for device in left)  # it is leaving, suspended or kept
        return victims, refused

    def _gives_way(self, other: JobRecord, record: JobRecord) -> bool:
        """Whether a visitor leaves for the owner of cells: of the same queues only a lower class does."""
        queues = self._state.queues
        shared = any(queues.is_below(other.queue, name) for name in self._book.clusters_of(record.queue))
        return not shared or other.job.priority < record.job.priority

    # ---- work that cannot leave ---------------------------------------------------------------------------------

    def place_staying(
        self, record: JobRecord, mask: NodeMask | None, place: Callable[[NodeMask | None], Placed | None]
    ) -> Placed | None:
        """The place that ``place`` finds by a mask and takes, if it leaves what all queues are owed."""
        journal = self._state.journal
        if self._book.allocator is None or record.job.preemptible:
            return place(mask)
        for _ in range(TRIES):
            mark = journal.begin()
            placed = place(mask)
            if placed is None or not self._book.breaks(record, placed):
                journal.commit()
                return placed
            journal.rollback(mark)
            mask = np.ones(self._state.cluster.arrays.node_count, dtype=np.uint8) if mask is None else mask.copy()
            mask[[holding.node for _, holding in placed]] = 0
        return None

    def keep_sound(self, plan: Callable[[], Plan | None]) -> Plan | None:
        """A plan, unless work that cannot leave would break into what others are owed; nothing is changed then."""
        if self._book.allocator is None:
            return plan()
        mark = self._state.journal.begin()
        found = plan()
        if found is not None and not found.record.job.preemptible and self._book.breaks(found.record, found.placed):
            self._state.journal.rollback(mark)
            return None
        self._state.journal.commit()
        return found


def _devices(record: JobRecord) -> list[int]:
    return [device for task in record.tasks if task.holding is not None for device in task.holding.devices]
