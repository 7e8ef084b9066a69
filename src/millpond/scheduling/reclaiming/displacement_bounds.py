"""Bounds that spare searches: which waiting jobs can displace nothing by the ordering, whatever a plan would try.

Running work leaves for a waiting job if that job's ``displaces_above`` is below a bound of its own. So for all jobs of
one queue, pool and class there is one bound, that of the highest they may ask. And for all that ask for the same there
is one: on some node all those must leave without whom there is no room, and it is the lowest of theirs. It is lower for
those whose reach is less: some work is of queues whose turn comes before theirs, and some nodes are kept from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from millpond.model.workloads import Priority
from millpond.scheduling.feasibility.request_classes import RequestClass
from millpond.scheduling.ordering.base import cards
from millpond.scheduling.placement.arrays import Int64Array
from millpond.scheduling.placement.kernels import KernelSet, interpreted
from millpond.scheduling.placement.selector import Selector
from millpond.scheduling.reclaiming.roster import LEAST_MOVING_CARDS, SLOT_OWNER, SLOT_SEQUENCE, BoolArray
from millpond.scheduling.reclaiming.running_work import RunningWork
from millpond.scheduling.reclaiming.victims import MOST_ROWS, room_below
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.displacement import Displacement, Entitlement

Kind = tuple[str, str, int]
"""Queue, pool and class of priority: the same work may leave for all jobs of a kind."""


def kind_of(record: JobRecord) -> Kind:
    """The kind of a job."""
    return record.queue, record.job.pool, record.job.priority


@dataclass(slots=True)
class RequestBound:
    """What is known of those that ask for the same.

    Attributes:
        below: the bound, or ``above`` where it is no higher.
        above: what was asked for; how low the bound is below that is not known.
        freed_rooms: of how many of the walk it knows.
    """

    below: float
    above: float
    freed_rooms: int


class BarredNodes(NamedTuple):
    """Nodes that are kept from jobs.

    Attributes:
        key: differs where the nodes may.
        mask: (nodes,), 0 for those.
    """

    key: tuple[str, bool, int]
    mask: NDArray[np.uint8]


class Reach(NamedTuple):
    """Whose running work may leave by the ordering, and where.

    Attributes:
        key: differs where the others may.
        owners: (owners of the roster,) whose; None: everybody's.
        kept: where not; None: it may anywhere.
    """

    key: tuple[bytes, tuple[str, bool, int] | None]
    owners: BoolArray | None
    kept: BarredNodes | None


EVERYWHERE = Reach((b"", None), None, None)


@dataclass(frozen=True, slots=True)
class FreedRoom:
    """Work was asked to leave, and others have taken its place.

    Attributes:
        nodes: those that have changed since the time before.
        highest: for each class of priority, the highest bound of work there.
        leaving: how many jobs had been asked in all.
        change_head: how long the arrays' change log was.
    """

    nodes: Int64Array
    highest: Mapping[Priority, float]
    leaving: int
    change_head: int


_NO_NODES: Int64Array = np.zeros(0, dtype=np.int64)


class DisplacementBounds:
    """Bounds on one state during one walk."""

    def __init__(self, state: State, selector: Selector, running: RunningWork, displacement: Displacement) -> None:
        self._state = state
        self._selector = selector
        self._running = running
        self._displacement = displacement
        self.by_queue = False
        self._by_class: dict[int, float] = {}
        self._by_kind: dict[Kind, float] = {}
        self._highest: dict[int, list[tuple[JobRecord, float]]] = {}
        self._stamp: tuple[tuple[int, int], int] | None = None
        """Up to which ``stamp`` the three before hold."""
        self._open: dict[tuple[int, tuple[object, ...]], BoolArray] = {}
        self._by_request: dict[tuple[RequestClass, int, object], RequestBound] = {}
        self._freed_rooms: list[FreedRoom] = []
        self._order = np.zeros(MOST_ROWS, dtype=np.int64)
        self.use_kernels(interpreted())

    def use_kernels(self, kernels: KernelSet) -> None:
        """Run on other kernels from now on; bounds are the same."""
        self._room_below = kernels.call(room_below.__name__)

    @property
    def stamp(self) -> tuple[tuple[int, int], int]:
        """Differs whenever other work than before may leave: another queue has its turn, or some was asked."""
        return self._displacement.turns, len(self._running.leaving)

    def begin(self) -> None:
        """A walk begins, with its ``Displacement``."""
        self._stamp = None
        by_queue = self._displacement.is_by_queue(Entitlement.ORDERING)
        self.by_queue = by_queue and not self._state.queues.has_guarantees
        self._by_request.clear()
        self._freed_rooms.clear()

    def exclude(self, record: JobRecord, kept: BarredNodes | None, *, is_long: bool) -> bool:
        """Whether no running work could leave for a job by the ordering.

        Args:
            kept: nodes that are kept from it.
            is_long: there are many lines, so that it pays to look closely for what others ask for too.
        """
        above = record.displaces_above
        if above >= self.of_class(record.job.priority) or (self.by_queue and above >= self.of_kind(record)):
            return True
        if not is_long:
            return False
        reach = self.reach(record, kept)
        return above >= self.of_request(record, above) or (
            reach is not EVERYWHERE and above >= self.of_request(record, above, reach)
        )

    def of_class(self, priority: int) -> float:
        """A job of this class of priority displaces something only if its ``displaces_above`` is below this."""
        self._forget_outdated()
        found = self._by_class.get(priority)
        if found is None:
            found = self._by_class[priority] = float(self._running.bounds(priority).max(initial=-np.inf))
        return found

    def of_kind(self, record: JobRecord) -> float:
        """A job of this queue, pool and class displaces something only if its ``displaces_above`` is below this."""
        if not self.by_queue:
            return self.of_class(record.job.priority)
        self._forget_outdated()
        kind = kind_of(record)
        if kind not in self._by_kind:
            is_open = partial(self._displacement.is_open, record, by=Entitlement.ORDERING)
            bounds = (bound for victim, bound in self._highest_of(record.job.priority) if is_open(victim))
            self._by_kind[kind] = next(bounds, -np.inf)
        return self._by_kind[kind]

    def _forget_outdated(self) -> None:
        """What was found before other queues had their turn, or other work was asked to leave, holds no longer."""
        stamp = self.stamp
        if stamp != self._stamp:
            self._stamp = stamp
            self._by_class.clear()
            self._by_kind.clear()
            self._highest.clear()
            self._open.clear()

    def _highest_of(self, priority: int) -> list[tuple[JobRecord, float]]:
        """A running job of each owner that has some of a class, and the highest bound of these; the highest first."""
        found = self._highest.get(priority)
        if found is None:
            bounds = self._running.bounds(priority)
            slots = np.flatnonzero(bounds > -np.inf)
            victims = self._state.roster.one_of_each_owner(slots[np.argsort(bounds[slots])])
            found = [(victim, float(bounds[victim.slot])) for victim in victims]
            found.sort(key=itemgetter(1), reverse=True)
            self._highest[priority] = found
        return found

    def open_to(self, record: JobRecord) -> BoolArray:
        """(owners of the roster,) whose work may leave by the ordering for jobs of this queue, pool and class."""
        self._forget_outdated()
        turn = record.job.priority, self._displacement.turn_of(record)
        owners = self._open.get(turn)
        if owners is None:
            is_open = partial(self._displacement.is_open, record, by=Entitlement.ORDERING)
            roster, priority = self._state.roster, record.job.priority
            holders = roster.one_of_each_owner(np.flatnonzero(self._running.outside_cells((priority, priority))))
            owners = self._open[turn] = np.zeros(roster.owner_count, dtype=np.bool_)
            owners[[int(roster.slots[SLOT_OWNER, victim.slot]) for victim in holders if is_open(victim)]] = True
        return owners

    def reach(self, record: JobRecord, kept: BarredNodes | None) -> Reach:
        """Whose work may leave for jobs of this queue, pool and class, if some nodes are kept from them."""
        if not self.by_queue:
            return EVERYWHERE if kept is None else Reach((b"", kept.key), None, kept)
        owners = self.open_to(record)
        return Reach((owners.tobytes(), None if kept is None else kept.key), owners, kept)

    def of_request(self, record: JobRecord, above: float, reach: Reach = EVERYWHERE) -> float:
        """Departures make room for a job that asks for this only if its ``displaces_above`` is below this.

        Args:
            above: how low a bound is of interest; the answer is no lower.
            reach: who may leave at most.

        Infinite for a job of several tasks: those without room may find it where others leave it.
        """
        if len(record.tasks) > 1:
            return np.inf
        self._note_freed_room()
        kind, count = (record.demand, int(record.job.priority), reach.key), len(self._freed_rooms)
        known = self._by_request.get(kind)
        if known is None or known.above > above:
            known = RequestBound(self._bound(record, above, None, reach), above, count)
            self._by_request[kind] = known
        # Who leaves makes room where it was; elsewhere there is no more than there was.
        for freed in self._freed_rooms[known.freed_rooms :]:
            if _moves_others(record) or freed.highest[record.job.priority] > known.below:
                known.below = self._bound(record, known.below, freed.nodes, reach)
        known.freed_rooms = count
        return known.below

    def _note_freed_room(self) -> None:
        """See which nodes have changed since work was asked to leave."""
        arrays, leaving = self._state.cluster.arrays, len(self._running.leaving)
        if not self._freed_rooms:  # nothing was looked up before
            self._freed_rooms.append(FreedRoom(_NO_NODES, {}, leaving, arrays.change_head))
        last = self._freed_rooms[-1]
        if leaving == last.leaving:
            return
        nodes = arrays.changed_since(last.change_head)
        slots = self._state.roster.slots_on(nodes)
        highest = {each: float(self._running.bounds(each)[slots].max(initial=-np.inf)) for each in Priority}
        self._freed_rooms.append(FreedRoom(nodes, highest, leaving, arrays.change_head))

    def _bound(self, record: JobRecord, above: float, nodes: Int64Array | None, reach: Reach) -> float:
        """See ``room_below``; of all nodes if they are None."""
        arrays, roster = self._state.cluster.arrays, self._state.roster
        bounds = self._running.bounds(record.job.priority, cards(record) if _moves_others(record) else 0.0)
        if reach.owners is not None:
            bounds = np.where(roster.are_of(reach.owners), bounds, -np.inf)
        if nodes is None:
            nodes = roster.nodes_with(bounds > above)
        if reach.kept is not None:
            nodes = nodes[nodes < len(reach.kept.mask)]
            nodes = nodes[reach.kept.mask[nodes] != 0]
        shape = self._state.cluster.words.shapes_of(record.demand)[record.tasks[0].role_index]
        return float(
            self._room_below(
                arrays.node_table, arrays.device_table, nodes, self._selector.vector(shape), roster.rows,
                roster.row_devices, roster.row_memory, roster.node_head, bounds, roster.slots[SLOT_SEQUENCE], above,
                self._order,
            )
        )  # fmt: skip


def _moves_others(record: JobRecord) -> bool:
    """Whether others may be moved aside for a job."""
    return cards(record) >= LEAST_MOVING_CARDS
