"""Places on reserved cards, in one walk: who may start there, and what others may take beside them.

Jobs of the reservation's queue are tried on its cards before anywhere else. What these have not taken counts as held by
the queue, so that its other work does not live on the same guarantee twice; for a job that may start there it does not
count meanwhile. Nodes of which some cards alone are kept take others on the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from millpond.model.resources import Amount
from millpond.scheduling.cycle.job_placement import NodeMask, Placed, Placer
from millpond.scheduling.elastic.gang_sizes import most_tasks
from millpond.scheduling.nodes.cordon import stays_until
from millpond.scheduling.records import JobRecord, TaskRecord
from millpond.scheduling.reserving.choosing import usable_cards
from millpond.scheduling.reserving.reserved_rooms import ReservedRoom
from millpond.scheduling.state import State

TRIES = 16
"""So many places a job is tried on before it is looked at as if nothing were reserved: a bound on work."""


class ReservedPlaces:
    """The reserved cards of one state, as a walk leaves them.

    Attributes:
        is_used: whether there are any reservations.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._unused: dict[str, dict[str, int]] = {}
        self._charged: dict[str, int] = {}
        self._spare: dict[int, int] | None = None
        self.is_used = False

    def begin_walk(self) -> None:
        """What nobody has taken counts for its queue from now on, on the trial ledger."""
        state = self._state
        self.is_used = bool(state.reserved.by_name)
        self._spare = None
        self._unused.clear()
        self._charged.clear()
        for name, room in state.reserved.by_name.items() if self.is_used else ():
            if room.cards_on and room.wanted.covers(state.now):
                self._unused[name] = state.reserved.unused(room, state.running, state.cluster)
                self._count(room, 1)

    def end_walk(self) -> None:
        """It counts no more."""
        for name in list(self._charged):
            self._count(self._state.reserved.by_name[name], -1)

    def _count(self, room: ReservedRoom, sign: int) -> None:
        name = room.wanted.name
        milli = sum(self._unused[name].values()) if sign > 0 else self._charged.pop(name)
        if sign > 0:
            self._charged[name] = milli
        self._state.queues.charge(room.wanted.queue, Amount(milli), sign)

    # ---- those who have reserved --------------------------------------------------------------------------------

    def open_to(self, record: JobRecord) -> list[ReservedRoom]:
        """The reservations on whose cards a job may start."""
        return self._state.reserved.open_to(record, self._state.now) if self.is_used and record.gpu_milli else []

    def place(self, placer: Placer, record: JobRecord, room: ReservedRoom, allowed: NodeMask | None) -> Placed | None:
        """Take holdings for a job on reserved cards, for as many tasks as they and its limits take; None if for none.

        Whether a guarantee covers them was asked when the reservation was made.

        Args:
            allowed: (nodes,), 0 keeps a node out.
        """
        state = self._state
        self._count(room, -1)
        queued, mask = record.queued(), self._mask_of(room)
        if allowed is not None:
            mask &= allowed

        def is_allowed(tasks: list[TaskRecord]) -> bool:
            return state.keeps_limits(record, record.amount_of(tasks))

        tasks = most_tasks(record.job, queued, is_allowed) if record.elastic else queued
        placed = (
            self._place_on(placer, record, tasks, self._unused[room.wanted.name], mask)
            if tasks and is_allowed(tasks)
            else None
        )
        for node, milli in _milli_on(self._state, placed or []).items():
            self._unused[room.wanted.name][node] -= milli
        self._count(room, 1)
        return placed

    def _mask_of(self, room: ReservedRoom) -> NodeMask:
        """(nodes,), 1 where some of its cards are left."""
        state, unused = self._state, self._unused[room.wanted.name]
        mask = np.zeros(state.cluster.arrays.node_count, dtype=np.uint8)
        mask[[state.cluster.node_index[name] for name, milli in unused.items() if milli]] = 1
        return mask

    def _place_on(
        self, placer: Placer, record: JobRecord, tasks: list[TaskRecord], unused: dict[str, int], mask: NodeMask
    ) -> Placed | None:
        state, journal, index = self._state, self._state.journal, self._state.cluster.node_index
        for _ in range(TRIES):
            mark = journal.begin()
            placed = placer.place(record, mask, tasks=tasks)
            if placed is None:
                journal.commit()
                return None
            over = [node for node, milli in _milli_on(state, placed).items() if milli > unused[node]]
            if not over:
                journal.commit()
                return placed
            journal.rollback(mark)
            mask[[index[node] for node in over]] = 0
        return None

    # ---- all others ---------------------------------------------------------------------------------------------

    def place_beside(
        self,
        placer: Placer,
        record: JobRecord,
        mask: NodeMask | None,
        allowed: NodeMask | None,
        tasks: list[TaskRecord] | None,
    ) -> Placed | None:
        """Take holdings for a job beside reserved cards, on nodes of which not all are; None if there is no room.

        Args:
            mask: (nodes,), 0 keeps a node out.
            allowed: the same, if nothing were reserved.
        """
        journal = self._state.journal
        spare = self._spare_cards()
        open_nodes = [node for node, count in spare.items() if count > 0]
        if not open_nodes or mask is None:
            return None
        mask = mask.copy()
        mask[open_nodes] = 1 if allowed is None else allowed[open_nodes]
        for _ in range(TRIES):
            mark = journal.begin()
            placed = placer.place(record, mask, tasks=tasks)
            if placed is None:
                journal.commit()
                return None
            taken = _cards_on(placed)
            over = [node for node, count in taken.items() if node in spare and count > spare[node]]
            if not over:
                for node in taken.keys() & spare.keys():
                    spare[node] -= taken[node]
                journal.commit()
                return placed
            journal.rollback(mark)
            mask[over] = 0
        return None

    def _spare_cards(self) -> dict[int, int]:
        """By index of the node: how many cards others may still take on nodes of which not all cards are kept."""
        if self._spare is not None:
            return self._spare
        state, index = self._state, self._state.cluster.node_index
        spare: dict[int, int] = {}
        for room in state.reserved.by_name.values():
            for name, cards in room.cards_on.items():
                node = state.cluster.node_named(name)
                if node is not None and name not in state.cordons.by_node:
                    there = index[name]
                    spare[there] = spare.get(there, usable_cards(node, room.wanted)) - cards
        spare = {node: count for node, count in spare.items() if count > 0}
        for record in state.running.values() if spare else ():
            if any(room.has_user(record) for room in state.reserved.by_name.values()):
                continue
            for task in record.tasks:
                if task.holding is not None and task.holding.node in spare:
                    spare[task.holding.node] -= len(task.holding.devices)
        self._spare = spare
        return spare

    # ---- work that stays ----------------------------------------------------------------------------------------

    def lacks_guarantee_ahead(self, record: JobRecord, tasks: Sequence[TaskRecord]) -> bool:
        """Whether a job that cannot be asked to leave would be there yet when its queues need what covers it."""
        if not self.is_used or record.job.preemptible:
            return False
        self.count_ahead(record, 1)
        is_admitted = self._state.admits(record, record.amount_of(tasks))
        self.count_ahead(record, -1)
        return not is_admitted

    def count_ahead(self, record: JobRecord, sign: int) -> None:
        """Count the reservations that begin while a job stays which cannot be asked to leave, as if they had begun."""
        state = self._state
        until = stays_until(record, state.ordering.time_left, state.now)
        for room in () if record.job.preemptible else state.reserved.by_name.values():
            if state.now < room.wanted.begin < until:
                state.queues.charge(room.wanted.queue, Amount(room.wanted.gpu_milli), sign)


def charge_reserved(state: State, record: JobRecord) -> None:
    """Count what is reserved as the walk does when it looks at a job, in the open transaction; see above."""
    places = ReservedPlaces(state)
    places.begin_walk()
    places.count_ahead(record, 1)


def note_start(state: State, record: JobRecord) -> None:
    """A job has started: it uses the first of the reservations whose cards it has alone, if it may.

    What its queue is guaranteed is then owed to it before all else: others take back what the queue runs elsewhere.
    """
    for room in state.reserved.open_to(record, state.now) if record.gpu_milli else ():
        unused = state.reserved.unused(room, state.running, state.cluster)
        placed = [(task, task.holding) for task in record.tasks if task.holding is not None]
        if all(milli <= unused.get(node, -1) for node, milli in _milli_on(state, placed).items()):
            room.users[record.id] = record.attempt
            record.took_back = True
            return


def _milli_on(state: State, placed: Placed) -> dict[str, int]:
    """By name of the node, the compute of a place."""
    found: dict[str, int] = {}
    for _, holding in placed:
        name = state.cluster.node_name(holding.node)
        found[name] = found.get(name, 0) + holding.shape.total_compute_milli
    return found


def _cards_on(placed: Placed) -> dict[int, int]:
    found: dict[int, int] = {}
    for _, holding in placed:
        found[holding.node] = found.get(holding.node, 0) + len(holding.devices)
    return found
