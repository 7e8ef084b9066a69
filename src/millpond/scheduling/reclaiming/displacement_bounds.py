"""Bounds that spare searches: which waiting jobs can displace nothing by the ordering, whatever a plan would try.

Running work leaves for a waiting job if that job's ``displaces_above`` is below a bound of its own. So for all jobs of
one queue, pool and class there is one bound, that of the highest they may ask. And for all that ask for the same there
is one (``request_bounds``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from millpond.scheduling.placement.arrays import BoolArray, FloatArray
from millpond.scheduling.placement.kernels import KernelSet, interpreted
from millpond.scheduling.reclaiming.kept_turns import KeptTurns
from millpond.scheduling.reclaiming.request_bounds import Asked, BarredNodes, Reach, RequestBounds
from millpond.scheduling.reclaiming.room_bounds import highest_of_owners
from millpond.scheduling.reclaiming.roster import SLOT_ALIVE, SLOT_OWNER
from millpond.scheduling.reclaiming.running_work import RunningWork
from millpond.scheduling.records import Group, JobRecord
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.displacement import Displacement, Entitlement, HoldersInTurn
from millpond.scheduling.tenancy.queue_node import QueueNode


class DisplacementBounds:
    """Bounds on one state during one walk."""

    def __init__(self, state: State, running: RunningWork, displacement: Displacement) -> None:
        self._state = state
        self._running = running
        self._displacement = displacement
        self.by_queue = False
        """Whether it matters of which queues the two are."""
        self._highest: dict[int, FloatArray] = {}
        """See ``_of_owners``, by class."""
        self._highest_at = -1
        """How many had been asked to leave when ``_highest`` was found."""
        self._open: dict[tuple[int, tuple[object, ...]], BoolArray] = {}
        self._open_to: dict[tuple[str, str, int, Group | None], BoolArray] = {}
        """See ``open_to``; and ``_open``, whom no guarantee shields: by class and what the turn follows from."""
        self._holders: dict[int, HoldersInTurn] = {}
        """By class, one of each owner of the work that may leave."""
        self._rounds_at: tuple[object, ...] | None = None
        """Of which rounds ``_open`` and ``_holders`` are,"""
        self._unshielded: dict[str, BoolArray] = {}
        """(owners,) whose work no guarantee shields from a queue, by that queue."""
        self._covering: tuple[list[QueueNode], BoolArray] | None = None
        """Queues, and (queues, owners) of whose work the guarantee of each covers all."""
        self._shielding_at: tuple[bool, ...] | None = None
        """and of which shields these two; who is asked to leave closes nobody's."""
        self.kept_turns = KeptTurns(state, displacement)
        self._requests = RequestBounds(state, running, self.kept_turns)
        self.use_kernels(interpreted())

    def use_kernels(self, kernels: KernelSet) -> None:
        """Run on other kernels from now on; bounds are the same."""
        self._requests.use_kernels(kernels)
        self._highest_of_owners = kernels.call(highest_of_owners.__name__)

    def begin(self) -> None:
        """A walk begins, with its ``Displacement``."""
        self._highest_at, self._rounds_at, self._shielding_at = -1, None, None
        self.kept_turns.begin()
        self.by_queue = self._displacement.is_by_queue(Entitlement.ORDERING)

    @property
    def turns(self) -> tuple[object, ...]:
        """See ``Displacement``."""
        return self._displacement.turns

    @property
    def as_of(self) -> tuple[object, ...]:
        """Differs whenever a bound may, in one walk."""
        return self._state.cluster.arrays.change_head, len(self._running.leaving), *self.turns

    def exclude(self, record: JobRecord) -> bool:
        """Whether no running work could leave for a job by the ordering."""
        above = record.displaces_above
        return above >= self.of_class(record.job.priority) or (self.by_queue and above >= self.of_queue(record))

    def of_class(self, priority: int) -> float:
        """A job of this class of priority displaces something only if its ``displaces_above`` is below this."""
        return float(self._of_owners(priority).max(initial=-np.inf))

    def of_queue(self, record: JobRecord) -> float:
        """A job of this queue, pool and class displaces something only if its ``displaces_above`` is below this."""
        of_owners = self._of_owners(record.job.priority)
        return float((of_owners[self.open_to(record)] if self.by_queue else of_owners).max(initial=-np.inf))

    def of_queues(self, records: Sequence[JobRecord]) -> FloatArray:
        """(records,) the same for several."""
        of_owners = np.array([self._of_owners(record.job.priority) for record in records])
        if self.by_queue:
            of_owners[~np.array(self._open_to_each(records))] = -np.inf
        found: FloatArray = of_owners.max(axis=1, initial=-np.inf)
        return found

    def _of_owners(self, priority: int) -> FloatArray:
        """(owners of the roster,) the highest bound of the work of each that is of a class."""
        leaving = len(self._running.leaving)
        if leaving != self._highest_at:
            self._highest_at = leaving
            self._highest.clear()
        found = self._highest.get(priority)
        if found is None:
            roster = self._state.roster
            found = self._highest[priority] = np.full(roster.owner_count, -np.inf)
            if len(found):  # slots that nobody has had yet are nobody's
                self._highest_of_owners(roster.owners, self._running.bounds(priority), found)
        return found

    def open_to(self, record: JobRecord) -> BoolArray:
        """(owners of the roster,) whose work may leave by the ordering for jobs of this queue, pool and class."""
        return self._open_to_each([record])[0]

    def _open_to_each(self, records: Sequence[JobRecord]) -> list[BoolArray]:
        rounds, shielding = self._displacement.rounds, self._state.queues.shielding
        if self._rounds_at != rounds:
            self._rounds_at = rounds
            self._open_to.clear()
            self._open.clear()
            self._holders.clear()
        if self._shielding_at != shielding:
            self._shielding_at = shielding
            self._open_to.clear()
            self._unshielded.clear()
            self._covering = None
        return [self._open_to_one(record) for record in records]

    def _open_to_one(self, record: JobRecord) -> BoolArray:
        key = record.queue, record.job.pool, record.job.priority, record.group
        found = self._open_to.get(key)
        if found is None:
            found = self._of_turn(record)
            if self._state.queues.has_guarantees:
                found = found & self._unshielded_from(record.queue)
            self._open_to[key] = found
        return found

    def _of_turn(self, record: JobRecord) -> BoolArray:
        """(owners of the roster,) whose work comes after jobs that have their turn as one has it."""
        roster, priority = self._state.roster, record.job.priority
        turn = priority, self._displacement.turn_of(record)
        owners = self._open.get(turn)
        if owners is None:
            holders = self._holders.get(priority)
            if holders is None:
                slots = np.flatnonzero(self._running.outside_cells((priority, priority)))
                holders = self._holders[priority] = self._displacement.in_turn(roster.one_of_each_owner(slots))
            owners = self._open[turn] = np.zeros(roster.owner_count, dtype=np.bool_)
            slots_of_holders = [holder.slot for holder in holders.records]
            of_holders = roster.slots[SLOT_OWNER, slots_of_holders].astype(np.int64)
            owners[of_holders] = self._displacement.come_after(record, holders)
        return owners

    def _unshielded_from(self, queue: str) -> BoolArray:
        """(owners of the roster,) whose work no guarantee shields from a queue, see ``QueueTree.shields``."""
        found = self._unshielded.get(queue)
        if found is None:
            if self._covering is None:
                self._covering = self._covering_of_owners()
            (guarantors, covering), path = self._covering, self._state.queues.by_name[queue].path
            others = [number for number, node in enumerate(guarantors) if node not in path]
            found = np.logical_not(np.logical_or.reduce(covering[others]))
            self._unshielded[queue] = found
        return found

    def _covering_of_owners(self) -> tuple[list[QueueNode], BoolArray]:
        roster, queues = self._state.roster, self._state.queues
        numbers: dict[QueueNode, int] = {}
        pairs = [
            (numbers.setdefault(node, len(numbers)), int(roster.slots[SLOT_OWNER, holder.slot]))
            for holder in roster.one_of_each_owner(np.flatnonzero(roster.live[SLOT_ALIVE] > 0.0))
            for node in queues.covering(holder.queue, with_cards=holder.gpu_milli > 0)
        ]
        covering = np.zeros((len(numbers), roster.owner_count), dtype=np.bool_)
        covering[tuple(np.array(pairs, dtype=np.int64).reshape(-1, 2).T)] = True
        return list(numbers), covering

    def reaches(self, records: Sequence[JobRecord], kept: Sequence[BarredNodes | None]) -> list[Reach]:
        """Whose work may leave for jobs of each queue, pool and class, if some nodes are kept from them."""
        if not self.by_queue:
            return [Reach.of(None, barred) for barred in kept]
        each = zip(records, self._open_to_each(records), kept, strict=True)
        return [Reach.of(owners, barred, record.queue) for record, owners, barred in each]

    def moved_from(self, priority: int, asked_cards: float) -> float:
        """From which key on any may be moved aside for a job of a class that asks for so many cards; or infinite."""
        return self._running.moved_from(priority, asked_cards)

    def of_requests(self, asked: Asked) -> FloatArray:
        """(asked,) departures make room for each only if its ``displaces_above`` is below this (``RequestBounds``)."""
        return self._requests.of(asked)
