"""Jobs of queues that are owed cells go to the very cards that these give them; others keep off what is owed.

Where work that may be asked to leave is on these cards, the plan says who leaves; nobody is asked without it. Work that
cannot leave, of whomever, stays off all cards whose loss would leave less than all queues are owed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from millpond.model.reasons import Cause
from millpond.model.workloads import Priority
from millpond.scheduling.cycle.job_placement import Placed, Placer
from millpond.scheduling.cycle.places_in_cells import place_in_cells
from millpond.scheduling.cycle.tried_places import Tries, nodes_of, try_places
from millpond.scheduling.ledger.holdings import FROZEN, NOTHING, RUNNING, Holding
from millpond.scheduling.nodes.topology_groups import near
from millpond.scheduling.placement.arrays import NodeMask
from millpond.scheduling.reclaiming.attempts import hold_all
from millpond.scheduling.reclaiming.plans import Planner
from millpond.scheduling.reclaiming.searching import Plan, softened
from millpond.scheduling.reclaiming.shrink import ShrinkPart
from millpond.scheduling.reclaiming.suspend_instead import ASKED_PER_CYCLE
from millpond.scheduling.records import JobRecord, TaskRecord
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.cells.losses import CellLosses

TRIES = 16
"""How many machines a search passes over whose cells do not do: a bound on work."""


class CellPlacer:
    """Places jobs in cells on one state."""

    def __init__(self, state: State, placer: Placer, planner: Planner) -> None:
        self._state = state
        self._placer = placer
        self._planner = planner
        self._book = state.cluster.cells

    def plan(self, record: JobRecord, tasks: Sequence[TaskRecord], mask: NodeMask | None) -> Plan | None:
        """The place of a job's tasks in its cells, taken on the ledger, with those who leave for it; None if none is.

        Args:
            mask: (nodes,), 0 keeps a node out.
        """
        state, journal, losses = self._state, self._state.journal, None
        for _ in range(TRIES):
            placed = place_in_cells(state, record, tasks, mask, losses)
            if placed is not None and losses is None and any(self._book.has_visitors(each) for _, each in placed):
                losses = self._losses()
                placed = place_in_cells(state, record, tasks, mask, losses)
            if placed is None:
                return None
            mark = journal.begin()
            plan, refused = self._take(record, placed, tasks, mask)
            if plan is not None:
                journal.commit()
                return plan
            journal.rollback(mark)
            if not refused:
                return None
            mask = np.ones(state.cluster.arrays.node_count, dtype=np.uint8) if mask is None else mask.copy()
            mask[list(refused)] = 0
        return None

    def _losses(self) -> CellLosses:
        """What work beside cells would lose, by cell."""
        roster, losses = self._state.roster, self._planner.loss_of_visitors()
        devices, slots = roster.devices_of(losses > 0.0)
        return self._book.losses(devices, slots, losses)

    def _take(
        self, record: JobRecord, placed: Placed, tasks: Sequence[TaskRecord], mask: NodeMask | None
    ) -> tuple[Plan | None, set[int]]:
        """Take a place off those who are there, and room for the other tasks.

        Else the nodes on which that cannot be; none where it is the others that find no room.
        """
        state, cluster, holdings = self._state, self._state.cluster, [holding for _, holding in placed]
        if any(holding.stake is None for holding in holdings):
            state.settle(record, holdings)
            if any(_owner(each) is None for each in holdings):
                return None, {holding.node for holding in holdings}
        victims, parts, refused = self._visitors(record, holdings)
        if refused:
            return None, refused
        for victim in victims:
            hold_all(state, victim, NOTHING)
        for part in parts:
            state.charge(part.record, state.amounts.held(part.record, part.tasks), -1)
            for task in part.tasks:
                if task.holding is not None:
                    cluster.change(task.holding, NOTHING)
        for holding in holdings:
            cluster.change(holding, RUNNING)
            if not holding.is_in_cell or cluster.is_overdrawn(holding):
                refused.add(holding.node)
        if refused:
            return None, refused
        others = self._place_others(record, placed, tasks, mask)
        if others is None:
            return None, refused
        placed = [*placed, *others]
        asked_later: tuple[JobRecord, ...] = ()
        if cluster.pools[record.job.pool].suspends and len(victims) > ASKED_PER_CYCLE:
            asked_later, victims = tuple(victims), []
        ways = softened(state, record, placed, victims)
        shrunk: dict[str, tuple[JobRecord, tuple[TaskRecord, ...]]] = {}
        for part in parts:
            if part.is_whole:
                victims.append(part.record)
            else:
                before = shrunk[part.record.id][1] if part.record.id in shrunk else ()
                shrunk[part.record.id] = part.record, (*before, *part.tasks)
        gone = tuple(shrunk.values())
        plan = Plan(record, tuple(victims), (), gone, placed, Cause.RECLAIMED, False, ways, asked_later)
        self._planner.leave(plan)
        return plan, refused

    def _place_others(
        self, record: JobRecord, placed: Placed, tasks: Sequence[TaskRecord], mask: NodeMask | None
    ) -> Placed | None:
        """Take room for those of a job's tasks that take no cards, beside the others; None if there is too little."""
        done = {task.number for task, _ in placed}
        others = [task for task in tasks if task.number not in done]
        if not others:
            return []
        within = near(self._state.cluster, record.job, placed[0][1].node, mask)
        found = self._placer.place_some(record, others, within, beside=placed)
        return found if len(found) == len(others) else None

    def _visitors(
        self, record: JobRecord, holdings: Sequence[Holding]
    ) -> tuple[list[JobRecord], list[ShrinkPart], set[int]]:
        """Who has to leave these cards: running work, what ends no running work, and the nodes that somebody keeps."""
        roster, by_device = self._state.roster, {device: each for each in holdings for device in each.devices}
        full = self._full(holdings)
        visits = Counter({device: count for device in full if (count := self._book.visits_of(device))})
        if not visits:
            return [], [], set()

        def gives_way(other: JobRecord) -> bool:
            owners = {_owner(by_device[device]) for device in _devices(other.tasks) if device in by_device}
            return bool(owners) and all(
                self._planner.may_displace_visitor(record, other, owner) for owner in owners if owner
            )

        parts = [part for part in self._planner.parts(gives_way) if not visits.keys().isdisjoint(_devices(part.tasks))]
        given_up: dict[str, Counter[int]] = {}
        for part in parts:
            given_up.setdefault(part.record.id, Counter()).update(_devices(part.tasks))
        for devices in given_up.values():
            visits.subtract(devices)
        nodes = np.array(sorted({by_device[device].node for device in by_device if visits[device] > 0}), dtype=np.int64)
        free = self._planner.unprotected((Priority.BACKGROUND, Priority.CRITICAL))
        victims = []
        there = [other for slot in roster.slots_on(nodes).tolist() if (other := roster.records[slot]) is not None]
        # Slots have other numbers where the roster was restored.
        for other in sorted(there, key=lambda each: each.sequence):
            on_cards = Counter(_devices(other.tasks))
            if not any(visits[device] > 0 for device in on_cards):
                continue
            if free[other.slot] and not self._book.is_in_cells(other) and gives_way(other):
                victims.append(other)
                visits.subtract(on_cards - given_up.get(other.id, Counter()))
        leaving = {victim.id for victim in victims}
        # What is left is leaving, or may not be asked.
        kept = {by_device[device].node for device in by_device if visits[device] > 0}
        return victims, [each for each in parts if each.record.id not in leaving], kept

    def _full(self, holdings: Sequence[Holding]) -> list[int]:
        """The cards of these holdings on which nobody else can stay: all that are taken whole, some that are shared."""
        parts = {device for each in holdings if not each.shape.whole_cards for device in each.devices}
        if parts:
            mark, cluster = self._state.journal.begin(), self._state.cluster
            for holding in holdings:
                cluster.change(holding, RUNNING)
            parts = {device for device in parts if cluster.has_room_left(device)}
            self._state.journal.rollback(mark)
        return list(dict.fromkeys(device for each in holdings for device in each.devices if device not in parts))

    # ---- work that cannot leave ---------------------------------------------------------------------------------

    def place_settled(
        self, record: JobRecord, mask: NodeMask | None, place: Callable[[NodeMask | None], Placed | None]
    ) -> Placed | None:
        """The place that ``place`` finds by a mask and takes, if it leaves what all queues are owed."""
        if self._book.allocator is None:
            return place(mask)

        def in_the_way(placed: Placed) -> list[int]:
            settles = self._state.settle(record, [holding for _, holding in placed])
            return [] if settles else nodes_of(placed)

        return try_places(self._state.cluster, place, mask, in_the_way, Tries(TRIES))

    def keep_sound(self, plan: Callable[[], Plan | None]) -> Plan | None:
        """A plan, unless work that cannot leave would break into what others are owed; nothing is changed then."""
        if self._book.allocator is None:
            return plan()
        mark = self._state.journal.begin()
        found = plan()
        places = () if found is None else ((found.record, found.placed), *found.moved)
        if not all(self._state.settle(record, [holding for _, holding in placed]) for record, placed in places):
            self._state.journal.rollback(mark)
            return None
        self._state.journal.commit()
        return found


def _owner(holding: Holding) -> str | None:
    """Whose cell a holding is in by right."""
    use = None if holding.stake is None else holding.stake.use
    return None if use is None else use.cluster


def _devices(tasks: Sequence[TaskRecord]) -> list[int]:
    """The cards that tasks have now, on a trial ledger too."""
    found = [task.holding for task in tasks if task.holding is not None and task.holding.hold in (RUNNING, FROZEN)]
    return [device for holding in found for device in holding.devices]
