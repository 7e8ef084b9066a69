"""Plans: whom to end so that one waiting job gets its whole placement, proved on the ledger before anyone is asked.

Three rules say who may be asked. *Reclaim*: a queue within its guarantee takes back what others borrowed. *Priority*: a
higher class ends lower work. *Ordering*: a selective ordering lets a waiting job displace running work whose key is
enough worse to pay for the preemption. Work is protected during its minimum run time, when its budget of preemptions is
used up, and when it is not preemptible.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from millpond.model.reasons import Cause
from millpond.model.workloads import TaskState
from millpond.scheduling.holdings import Hold
from millpond.scheduling.placement.kernels import KernelSet, interpreted
from millpond.scheduling.placement.selector import NO_NODE
from millpond.scheduling.placement.shapes import Shape
from millpond.scheduling.placing import NodeMask, Placed, Placer
from millpond.scheduling.reclaiming.roster import (
    SLOT_ALIVE,
    SLOT_CARDS,
    SLOT_PRIORITY,
    SLOT_PROTECTED_UNTIL,
    SLOT_SEQUENCE,
    SLOT_STARTED,
    FloatArray,
)
from millpond.scheduling.reclaiming.victims import MOST_ROWS
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State

BoolArray = NDArray[np.bool_]
_NO_MOVES: FloatArray = np.zeros(0)
_NO_MASK: NodeMask = np.zeros(0, dtype=np.uint8)


@dataclass(frozen=True, slots=True)
class Plan:
    """A proved way to make room.

    Attributes:
        victims: jobs to end, in the order they were found.
        moved: jobs to end here and start again elsewhere, with their new places.
        placed: the place that the job gets.
    """

    record: JobRecord
    victims: tuple[JobRecord, ...]
    moved: tuple[tuple[JobRecord, Placed], ...]
    placed: Placed
    cause: Cause
    by_ordering: bool

    @property
    def leaving(self) -> tuple[JobRecord, ...]:
        """Everybody who has to leave a node."""
        return (*self.victims, *(job for job, _ in self.moved))


class Planner:
    """Searches plans on a state. A plan that is found stays on the trial ledger; the walk decides about it."""

    def __init__(self, state: State, placer: Placer) -> None:
        self.state = state
        self.placer = placer
        self.use_kernels(interpreted())
        self._keys: FloatArray = np.zeros(0)
        self._highest_key = 0.0
        self._keys_at = (-1.0, -1)
        self._leaving: list[int] = []
        self._chosen = np.zeros(MOST_ROWS, dtype=np.int64)
        self._scratch = np.zeros(MOST_ROWS, dtype=np.int64)

    def use_kernels(self, kernels: KernelSet) -> None:
        """Run on other kernels from now on; plans are the same."""
        self._cheapest_room = kernels.call("cheapest_room")

    def begin(self) -> None:
        """A walk begins: nobody has been asked to leave in it yet."""
        self._leaving.clear()

    # ---- who may be asked ---------------------------------------------------------------------------------------

    def by_guarantee(self, record: JobRecord, mask: NodeMask | None) -> Plan | None:
        """Take back borrowed room for a queue that is within its guarantee."""
        state = self.state
        slots = state.roster.slots[:, : state.roster.used]
        allowed = self._unprotected(slots)
        for slot in np.flatnonzero(allowed):
            victim = state.roster.records[slot]
            if victim is None or victim.queue == record.queue or not self._is_borrowing(victim):
                allowed[slot] = False
        if not allowed.any():
            return None
        return self._search(record, allowed, *self._lost_work(slots), mask, Cause.RECLAIMED, self._is_borrowing)

    def by_priority(self, record: JobRecord, mask: NodeMask | None) -> Plan | None:
        """End work of lower classes."""
        slots = self.state.roster.slots[:, : self.state.roster.used]
        allowed = self._unprotected(slots) & (slots[SLOT_PRIORITY] < int(record.job.priority))
        if not allowed.any():
            return None
        harm, preference = self._lost_work(slots)
        # A lower class leaves before a higher one, whatever it costs.
        classes = 1.0 + slots[SLOT_PRIORITY]
        return self._search(record, allowed, harm * 10.0 ** (6.0 * classes), preference, mask, Cause.PREEMPTED)

    def by_ordering(self, record: JobRecord, mask: NodeMask | None) -> Plan | None:
        """End work of the same class whose turn is later, if that pays for itself."""
        state = self.state
        slots = state.roster.slots[:, : state.roster.used]
        keys = self._running_keys(slots)
        judged = state.ordering.victims(record, slots, keys, state.now)
        if judged is None:
            return None
        open_to_it = self._unprotected(slots) & (slots[SLOT_PRIORITY] == int(record.job.priority))
        allowed = judged.allowed & open_to_it
        if not allowed.any():
            return None
        if judged.movable.any():
            move_harm = np.where(judged.movable & open_to_it, judged.move_harm * judged.harm, np.inf)
            search = self._search(
                record, allowed, judged.harm, judged.preference, mask, Cause.PREEMPTED, move_harm=move_harm
            )
            if search is not None:
                return search
        return self._search(record, allowed, judged.harm, judged.preference, mask, Cause.PREEMPTED)

    def highest_running_key(self) -> float:
        """The highest key of running work: a waiting job that cannot displace that can displace nothing."""
        self._running_keys(self.state.roster.slots[:, : self.state.roster.used])
        return self._highest_key

    def _running_keys(self, slots: FloatArray) -> FloatArray:
        """Keys of running work, computed once an instant as long as the roster does not change."""
        state = self.state
        stamp = (state.now, state.roster.version)
        if stamp != self._keys_at:
            self._keys, self._highest_key = state.ordering.slot_keys(slots, state.now)
            self._keys_at = stamp
        return self._keys

    def _unprotected(self, slots: FloatArray) -> BoolArray:
        free: BoolArray = (slots[SLOT_ALIVE] > 0.0) & (slots[SLOT_PROTECTED_UNTIL] <= self.state.now)
        free[self._leaving] = False
        return free

    def _lost_work(self, slots: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Harm: GPU-seconds of the present run, at least one. Preference: the youngest run leaves first."""
        run = np.maximum(self.state.now - slots[SLOT_STARTED], 0.0) + 1.0
        return run * slots[SLOT_CARDS], slots[SLOT_STARTED].copy()

    def _is_borrowing(self, victim: JobRecord) -> bool:
        """Whether the victim's queue is beyond its guarantee now, so that this work counts as borrowed."""
        return self.state.queues.is_over_guarantee(victim.queue)

    # ---- the search ---------------------------------------------------------------------------------------------

    def _search(
        self,
        record: JobRecord,
        allowed: BoolArray,
        harm: FloatArray,
        preference: FloatArray,
        mask: NodeMask | None,
        cause: Cause,
        still: Callable[[JobRecord], bool] | None = None,
        move_harm: FloatArray = _NO_MOVES,
    ) -> Plan | None:
        """Place task after task on the trial ledger, making room where there is none; undone only if it fails.

        Args:
            still: asked of each victim when its turn comes; earlier victims may have changed the answer.
        """
        journal = self.state.journal
        harm = np.where(allowed, harm, np.inf)
        victims: list[JobRecord] = []
        moved: list[JobRecord] = []
        mark = journal.begin()
        placed = self._place_all(record, mask, harm, preference, move_harm, victims, moved, still)
        targets = [(job, self._place_elsewhere(job, mask)) for job in moved] if placed else []
        if not placed or not (victims or moved) or not all(target for _, target in targets):
            journal.rollback(mark)
            return None
        journal.commit()
        self._leaving.extend(job.slot for job in (*victims, *moved))
        return Plan(record, tuple(victims), tuple(targets), placed, cause, still is None and cause is Cause.PREEMPTED)

    def _place_all(
        self,
        record: JobRecord,
        mask: NodeMask | None,
        harm: FloatArray,
        preference: FloatArray,
        move_harm: FloatArray,
        victims: list[JobRecord],
        moved: list[JobRecord],
        still: Callable[[JobRecord], bool] | None,
    ) -> Placed:
        """Take holdings for all tasks that wait, largest first, making room as needed; empty if that fails."""
        cluster = self.state.cluster
        shapes = [cluster.shape_of(role.request, record.job.pool) for role in record.job.roles]
        tasks = [task for task in record.tasks if task.state is TaskState.QUEUED]
        placed: Placed = []
        for task in sorted(tasks, key=lambda task: -shapes[task.role_index].devices):
            shape = shapes[task.role_index]
            choice = self.placer.selector.place(shape, mask)
            if choice is not None:
                placed.append((task, self.placer.take(shape, choice)))
                continue
            node = self._make_room(shape, mask, harm, preference, move_harm, victims, moved, still)
            taken = None if node == NO_NODE else self.placer.take_on(node, shape)
            if taken is None:
                return []
            placed.append((task, taken))
        return placed

    def _place_elsewhere(self, record: JobRecord, mask: NodeMask | None) -> Placed:
        """Where a job that is moved aside goes on the trial ledger; empty if nowhere."""
        placed: Placed = []
        for task in record.tasks:
            shape = self.state.cluster.shape_of(record.job.roles[task.role_index].request, record.job.pool)
            choice = self.placer.selector.place(shape, mask)
            if choice is None:
                return []
            placed.append((task, self.placer.take(shape, choice)))
        return placed

    def _make_room(
        self,
        shape: Shape,
        mask: NodeMask | None,
        harm: FloatArray,
        preference: FloatArray,
        move_harm: FloatArray,
        victims: list[JobRecord],
        moved: list[JobRecord],
        still: Callable[[JobRecord], bool] | None,
    ) -> int:
        """Release the cheapest victims on the trial ledger; returns the node with the room, or ``NO_NODE``."""
        roster, arrays = self.state.roster, self.state.cluster.arrays
        while True:
            node, count = self._cheapest_room(
                arrays.node_table, arrays.device_table, arrays.node_count, self.placer.vector(shape),
                _NO_MASK if mask is None else mask, roster.rows, roster.row_devices, roster.row_memory,
                roster.node_head, harm, preference, move_harm,
                roster.slots[SLOT_SEQUENCE], self._scratch, self._chosen,
            )  # fmt: skip
            if node < 0:
                return NO_NODE
            if self._release_all(self._chosen[:count].tolist(), harm, move_harm, victims, moved, still):
                return int(node)

    def _release_all(
        self,
        chosen: list[int],
        harm: FloatArray,
        move_harm: FloatArray,
        victims: list[JobRecord],
        moved: list[JobRecord],
        still: Callable[[JobRecord], bool] | None,
    ) -> bool:
        """Take the chosen off the trial ledger; False if one of them may no longer be asked."""
        state = self.state
        for code in chosen:
            slot, is_moved = code >> 1, code & 1
            victim = state.roster.records[slot]
            harm[slot] = np.inf
            if is_moved:
                move_harm[slot] = np.inf
            if victim is None or (still is not None and not still(victim)):
                return False
            (moved if is_moved else victims).append(victim)
            holders = [task for task in victim.tasks if task.holding is not None]
            for task in holders:
                if task.holding is not None:
                    state.cluster.change(task.holding, Hold.NOTHING)
            state.queues.charge(victim.queue, state.amount_of(victim, holders), -1)
        return True
