"""Places on reserved cards, in one walk: who may start there, and what others may take beside them.

Jobs of the reservation's queue are tried on its cards before anywhere else, those that require it first. What they have
not taken counts as held by the queue, so that its other work does not live on the same guarantee twice; for a job that
may start there it does not count meanwhile. Nodes of which some cards alone are kept take others on the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from millpond.model.resources import Amount
from millpond.scheduling.cycle.job_placement import Placed, Placer
from millpond.scheduling.cycle.tried_places import Tries, try_places
from millpond.scheduling.elastic.gang_sizes import most_tasks
from millpond.scheduling.ledger.holdings import NOTHING, RUNNING, Holding
from millpond.scheduling.nodes.cordon import holds_until
from millpond.scheduling.placement.arrays import WHOLE_CARD_MILLI, NodeMask
from millpond.scheduling.placement.shapes import Shape
from millpond.scheduling.records import JobRecord, TaskRecord
from millpond.scheduling.reserving.reserved_rooms import ReservedRoom, most_kept
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.admission import is_guaranteed

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
        self._charged: dict[str, tuple[Amount, int]] = {}
        self._started: set[str] = set()
        """Reservations on whose cards this walk has placed a job."""
        self._held_by_others: set[int] | None = None
        """By number, the cards of which those hold something who have not reserved them; found when it is asked for."""
        self.is_used = False

    def look(self) -> None:
        """See anew what is reserved, and on which cards others are."""
        self.is_used = bool(self._state.reserved.by_name)
        self._held_by_others = None

    def begin_walk(self) -> None:
        """What nobody has taken counts for its queue from now on, on the trial ledger."""
        state = self._state
        self.look()
        self._unused.clear()
        self._charged.clear()
        self._started.clear()
        for name, room in state.reserved.by_name.items() if self.is_used else ():
            if room.cards_on and room.wanted.covers(state.now):
                self._unused[name] = state.reserved.unused(room, state.running, state.cluster)
                self._count(room, 1)

    def end_walk(self) -> None:
        """It counts no more."""
        for name in list(self._charged):
            self._count(self._state.reserved.by_name[name], -1)

    def _count(self, room: ReservedRoom, sign: int) -> None:
        name, state = room.wanted.name, self._state
        if sign > 0:
            jobs = 0 if name in self._started else state.reserved.awaited_jobs(room, state.running)
            self._charged[name] = state.amounts.of_reserved(room, self._unused[name]), jobs
            amount, jobs = self._charged[name]
        else:
            amount, jobs = self._charged.pop(name)
        state.charge_reserved(room.wanted.queue, amount, jobs, sign)

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
        state, least_milli = self._state, record.demand.least_amount.gpu_milli
        name, unused = room.wanted.name, self._unused[room.wanted.name]
        if not leaves_enough(state, room, unused, record, least_milli):
            return None
        state.journal.record(self._set_back, name, dict(unused), self._charged[name], name in self._started)
        self._count(room, -1)
        queued, mask = record.queued(), self._mask_of(room)
        if allowed is not None:
            mask &= allowed

        def is_allowed(tasks: list[TaskRecord]) -> bool:
            amount = record.amount_of(tasks)
            is_left = leaves_enough(state, room, unused, record, amount.gpu_milli)
            return is_left and state.entitlements.keeps_limits_as_reserved(record, amount)

        tasks = most_tasks(record.job, queued, is_allowed) if record.elastic else queued
        placed = None
        if tasks and is_allowed(tasks):
            index = state.cluster.node_index
            left = {index[name]: milli for name, milli in unused.items()}
            placed = self._place_within(placer, record, tasks, mask, left, _milli_on)
            unused.update({name: left[index[name]] for name in unused})
        if placed:
            self._started.add(name)
        self._count(room, 1)
        return placed

    def _set_back(self, name: str, unused: dict[str, int], charged: tuple[Amount, int], had_started: bool) -> None:
        """A place on the cards of a reservation is given up: so much of them was left before."""
        self._unused[name], self._charged[name] = unused, charged
        if not had_started:
            self._started.discard(name)

    def _mask_of(self, room: ReservedRoom) -> NodeMask:
        """(nodes,), 1 where some of its cards are left."""
        state, unused = self._state, self._unused[room.wanted.name]
        mask = np.zeros(state.cluster.arrays.node_count, dtype=np.uint8)
        mask[[state.cluster.node_index[name] for name, milli in unused.items() if milli]] = 1
        return mask

    # ---- all others ---------------------------------------------------------------------------------------------

    def mask_beside(self, record: JobRecord, mask: NodeMask | None, allowed: NodeMask | None) -> NodeMask | None:
        """(nodes,), the mask with the nodes open on which a job may take cards beside reserved ones; None for none.

        Args:
            mask: (nodes,), 0 keeps a node out.
            allowed: the same, if nothing were reserved.
        """
        open_nodes = [node for node, count in spare_cards(self._state, record, self._held).items() if count > 0]
        if not open_nodes or mask is None:
            return None
        mask = mask.copy()
        mask[open_nodes] = 1 if allowed is None else allowed[open_nodes]
        return mask

    def place_beside(
        self, placer: Placer, record: JobRecord, tasks: list[TaskRecord] | None, mask: NodeMask | None
    ) -> Placed | None:
        """Take holdings for a job on such nodes, no more of each than is left there; None if there is no room.

        Args:
            mask: as ``mask_beside`` gave it, or narrower.
        """
        if mask is None:
            return None
        held = self._held

        def new_on(placed: Placed) -> dict[int, int]:
            return new_cards_on(placed, held)

        placed = self._place_within(placer, record, tasks, mask, spare_cards(self._state, record, held), new_on)
        new = {device for _, holding in placed or [] for device in holding.devices} - held
        self._state.journal.record(held.difference_update, new)
        held |= new
        return placed

    def _place_within(
        self,
        placer: Placer,
        record: JobRecord,
        tasks: list[TaskRecord] | None,
        mask: NodeMask,
        left: dict[int, int],
        taken_by: Callable[[Placed], dict[int, int]],
    ) -> Placed | None:
        """Take holdings for a job that take no more of a node than is left there; what they take is left no more."""

        def place(mask: NodeMask | None) -> Placed | None:
            return placer.place(record, mask, tasks=tasks)

        def in_the_way(placed: Placed) -> list[int]:
            return [node for node, amount in taken_by(placed).items() if amount > left.get(node, amount)]

        placed = try_places(self._state.cluster, place, mask, in_the_way, Tries(TRIES))
        for node, amount in taken_by(placed or []).items():
            if node in left:
                left[node] -= amount
        return placed

    def mask_for_plans(self, record: JobRecord, mask: NodeMask | None, allowed: NodeMask | None) -> NodeMask | None:
        """(nodes,), the mask with the nodes open on which work may be asked to leave beside reserved cards.

        Those are nodes of which not all cards are kept, while all that are kept are in use: what is free there, and
        what becomes so, is nobody's.
        """
        if not self.is_used or mask is None:
            return mask
        state = self._state
        names = {name for unused in self._unused.values() for name in unused} - wanted_nodes(state, record)
        open_nodes = [state.cluster.node_index[name] for name in names if name not in state.cordons.by_node]
        mask = mask.copy()
        mask[open_nodes] = 1 if allowed is None else allowed[open_nodes]
        return mask

    @contextmanager
    def kept_as_held(
        self, record: JobRecord, mask: NodeMask | None, allowed: NodeMask | None
    ) -> Iterator[NodeMask | None]:
        """(nodes,), the mask with the nodes open of which not all cards are kept; None if there are none.

        Meanwhile those that are kept and free are held on the trial ledger, so that work is asked to leave the others.
        """
        state, cluster = self._state, self._state.cluster
        held, open_nodes = list[Holding](), list[int]()
        for node, cards in kept_from(state, record).items() if mask is not None else ():
            unused = cards - len(self._held_by_users(node))
            if unused > 0 and cards < cards_of(state, node) and (allowed is None or allowed[node]):
                open_nodes.append(node)
                if free := self._free_cards(node)[:unused]:
                    held.append(cluster.holding(node, Shape(devices=len(free)), free))
        if mask is None or not open_nodes:
            yield None
            return
        mask = mask.copy()
        mask[open_nodes] = 1
        for holding in held:
            cluster.change(holding, RUNNING)
        try:
            yield mask
        finally:
            for holding in held:
                cluster.change(holding, NOTHING)

    def _free_cards(self, node: int) -> list[int]:
        """The cards of a node of which nobody has anything, and that may be handed out."""
        arrays, first = self._state.cluster.arrays, int(self._state.cluster.arrays.first_device[node])
        cards = range(first, first + int(arrays.device_total[node]))
        usable, free = arrays.device_usable_cells, arrays.compute_free_cells
        mib, free_mib = arrays.device_memory_cells, arrays.device_memory_free_cells
        return [c for c in cards if usable[c] and free[c] == WHOLE_CARD_MILLI and free_mib[c] == mib[c]]

    def _held_by_users(self, node: int) -> set[int]:
        """The cards of a node on which those are who have reserved some."""
        users = [self._state.running[job] for job in self._state.reserved.users if job in self._state.running]
        held = (task.holding for record in users for task in record.tasks if task.holding is not None)
        return {device for holding in held if holding.node == node for device in holding.devices}

    @property
    def _held(self) -> set[int]:
        if self._held_by_others is None:
            self._held_by_others = held_by_others(self._state)
        return self._held_by_others


def held_by_others(state: State, leaves: Callable[[JobRecord], bool] = lambda record: False) -> set[int]:
    """By number, the cards of which those hold something who have not reserved them, and do not leave."""
    users = state.reserved.users
    others = (record for record in state.running.values() if record.id not in users and not leaves(record))
    held = (task.holding for record in others for task in record.tasks)
    return {device for holding in held if holding is not None for device in holding.devices}


def spare_cards(state: State, record: JobRecord, held: Collection[int]) -> dict[int, int]:
    """By index of the node, how many cards a job may take beside those that are kept while it would be there.

    Args:
        held: the cards that others have.
    """
    kept = kept_from(state, record)
    if not kept:
        return {}
    count = dict.fromkeys(kept, 0)
    for device in held:
        node = state.cluster.node_of(device)
        if node in count:
            count[node] += 1
    return {node: cards_of(state, node) - cards - count[node] for node, cards in kept.items()}


def new_cards_on(placed: Placed, held: Collection[int]) -> dict[int, int]:
    """By index of the node, of how many cards a place has something that others have nothing of."""
    cards = {holding.node: set[int]() for _, holding in placed}
    for _, holding in placed:
        cards[holding.node].update(holding.devices)
    return {node: len(found.difference(held)) for node, found in cards.items()}


def leaves_enough(state: State, room: ReservedRoom, unused: Mapping[str, int], record: JobRecord, milli: int) -> bool:
    """Whether a job that takes so much of the reserved cards leaves enough to those who wait for these alone.

    Args:
        unused: how much of the cards of each node is left, in milli.
    """
    required_by = state.reserved.required_by
    if required_by(record.job) is room:
        return True
    lines = (line for line in state.waiting.lines.values() if required_by(line[0][2].job) is room)
    needed = sum(entry[2].demand.least_amount.gpu_milli for line in lines for entry in line)
    return sum(unused.values()) - needed >= milli


def note_start(state: State, record: JobRecord) -> None:
    """A job has started: it uses the first of the reservations whose cards it has alone, if it may.

    What its queue is guaranteed is then owed to it before all else: others take back what the queue runs elsewhere.
    """
    index = state.cluster.node_index
    for room in state.reserved.open_to(record, state.now) if record.gpu_milli else ():
        unused = state.reserved.unused(room, state.running, state.cluster)
        left = {index[name]: milli for name, milli in unused.items()}
        placed = [(task, task.holding) for task in record.tasks if task.holding is not None]
        fits = all(milli <= left.get(node, -1) for node, milli in _milli_on(placed).items())
        if fits and leaves_enough(
            state, room, unused, record, record.amount_of([task for task, _ in placed]).gpu_milli
        ):
            room.users[record.id] = record.attempt
            return


def wanted_nodes(state: State, record: JobRecord) -> set[str]:
    """The nodes of which cards are reserved that are not in use, while a job that started now would be there.

    Of others, what is free and what becomes so belongs to nobody.
    """
    wanted: set[str] = set()
    until = holds_until(record, state.ordering.time_left, state.now)
    for room in state.reserved.by_name.values():
        if state.now < room.wanted.begin < until:
            wanted.update(room.cards_on)
        elif room.wanted.covers(state.now):
            unused = state.reserved.unused(room, state.running, state.cluster)
            wanted.update(name for name, milli in unused.items() if milli)
    return wanted


def is_wanted(state: State, record: JobRecord, placed: Placed) -> bool:
    """Whether a place of a job takes cards of such a node that are not left beside those that are kept."""
    wanted = wanted_nodes(state, record) if state.cordons.kept else ()
    is_there = any(state.cluster.node_name(holding.node) in wanted for _, holding in placed)
    return is_there and not leaves_kept(state, record, placed)


def leaves_kept(state: State, record: JobRecord, placed: Placed, leaving: Collection[JobRecord] = ()) -> bool:
    """Whether a place of a job leaves those cards of its nodes that are kept.

    Beside a job that a guarantee covers, what is borrowed will have left them once they are reserved.

    Args:
        leaving: who leaves for the job.
    """
    is_covered = is_guaranteed(state, record)

    def leaves(other: JobRecord) -> bool:
        is_borrowed = other.job.preemptible and not state.queues.covers_all(other.queue)
        return other in leaving or (is_covered and (is_borrowed or other.is_ending))

    held = held_by_others(state, leaves)
    spare = spare_cards(state, record, held)
    return all(count <= spare.get(node, count) for node, count in new_cards_on(placed, held).items())


def kept_from(state: State, record: JobRecord) -> dict[int, int]:
    """By index of the node, how many cards are kept while a job that started now would be there."""
    until = holds_until(record, state.ordering.time_left, state.now)
    kept = most_kept(state.reserved.by_name.values(), state.now, until)
    return {node: cards for name, cards in kept.items() if (node := state.cluster.node_index.get(name)) is not None}


def cards_of(state: State, node: int) -> int:
    """The cards of a node that may be handed out; none of one that is closed, or is to be."""
    there = state.cluster.nodes[node]
    if there is None or there.name in state.cordons.by_node:
        return 0
    return sum(map(state.cluster.hardware.is_usable, there.devices))


def _milli_on(placed: Placed) -> dict[int, int]:
    """By index of the node, the compute of a place."""
    found: dict[int, int] = {}
    for _, holding in placed:
        found[holding.node] = found.get(holding.node, 0) + holding.shape.total_compute_milli
    return found
