"""A pool as the futures of estimates see it: nodes with room of one resource, who holds it, who waits, and who comes.

The resource is the one of which there is least room for the job that is asked about: cards, CPU or memory. Ranks are
those of now. Of a large pool every n-th node stands for all, and then every n-th of the other jobs; of a long line the
first part does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from millpond.model import windows
from millpond.model.hardware.node_selection import NodeSelection
from millpond.model.hardware.topology import Level
from millpond.model.resources import CARD_MILLI
from millpond.model.states import JobState
from millpond.model.tenancy.tenants import ROOT_QUEUE
from millpond.model.workloads import CheckpointMode
from millpond.scheduling.cycle.job_placement import Placer, spacing_of
from millpond.scheduling.estimating.displacer import Displacer, Preemption
from millpond.scheduling.estimating.kept_nodes import CLOSED, KeptNodes
from millpond.scheduling.estimating.lengths import Length, Lengths, lasts
from millpond.scheduling.estimating.limit_accounts import EVERY_KIND, LimitAccounts
from millpond.scheduling.estimating.line_order import PoolOrder, Ranked
from millpond.scheduling.estimating.pool_state import FirstWaiting, PoolModel
from millpond.scheduling.estimating.possible_jobs import Candidate, Counted, Demand, HeldRoom, InLine, Weighing
from millpond.scheduling.estimating.spaced_rooms import SpacedParts
from millpond.scheduling.estimating.wait_bounds import WaitBounds
from millpond.scheduling.feasibility.request_classes import RequestClass
from millpond.scheduling.ledger.holdings import Holding, HoldState
from millpond.scheduling.nodes.cordon import stays_beside_reserved, stays_until
from millpond.scheduling.nodes.topology_groups import spacing_in_groups
from millpond.scheduling.ordering.base import cards
from millpond.scheduling.ordering.default import Default
from millpond.scheduling.ordering.forecasts import NEVER
from millpond.scheduling.ordering.guard import LONGEST_DELAY, length_class
from millpond.scheduling.ordering.line_table import PRIORITY
from millpond.scheduling.ordering.queueing import OVERDUE_LEAD, is_in_window
from millpond.scheduling.placement.arrays import Int64Array
from millpond.scheduling.placement.shapes import Shape
from millpond.scheduling.reclaiming.preemption_budget import PREEMPTION_BUDGET
from millpond.scheduling.reclaiming.roster import SLOT_ALIVE, SLOT_PRIORITY
from millpond.scheduling.records import BY_REQUEST, Group, JobRecord
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.queue_rank import QueueRank, Rank

MOST_NODES = 96
"""Of a pool of twice as many nodes or more, not all are looked at, but at least so many,"""

NODES_PER_TASK = 3
"""and so many for each task of the job."""

MOST_AHEAD = 1000
"""Jobs ahead that are looked at; those behind them are taken to move up at the same pace."""

MOST_BEHIND = 300
"""Jobs behind that are looked at: they may start first all the same."""


@dataclass(frozen=True, slots=True)
class Resource:
    """What the model counts.

    Attributes:
        of: how much a task of a shape takes.
        free: (nodes,) of the nodes that are looked at.
        unit: for the levels of ``rooms.Rooms``.
    """

    of: Callable[[Shape], int]
    free: Int64Array
    unit: int

    def of_cards(self, count: int, there: int) -> int:
        """How much of a node is taken for others with so many of its usable cards."""
        if self.of is _compute:
            return count * CARD_MILLI
        return CLOSED if count >= there else 0


class View(NamedTuple):
    """What part of the cluster answers a question: those that have it in common have their futures in common.

    Attributes:
        every: one in so many nodes is looked at.
        resource: which one is counted: cards, CPU or memory, by number.
    """

    pool: str
    every: int
    resource: int


@dataclass(slots=True)
class Running:
    """Who runs on the nodes that are looked at; never changed, see ``lengths.Length``.

    Attributes:
        length: what is left of it,
        is_known: by more than what has ended so far.
        leaves_s: after so many seconds it has to leave,
        stays_s: and for so long at least nobody else gets its room.
    """

    room: HeldRoom
    length: Length
    is_known: bool
    leaves_s: float
    stays_s: float


@dataclass(frozen=True, slots=True)
class LineUp:
    """The jobs whose starts are found together: every n-th that waits, or the first part of them and one behind.

    Attributes:
        pace: by what the wait of its last has to be multiplied, as its line is shorter than the real one.
    """

    ranked: tuple[Ranked, ...]
    pace: float = 1.0


def view_of(state: State, placer: Placer, record: JobRecord) -> View:
    """The one that answers a question about a job."""
    there = state.cluster.hardware_index.numbers_of(record.job.pool)
    every = max(len(there) // max(MOST_NODES, NODES_PER_TASK * len(record.tasks)), 1)
    resources = _resources(state, placer, there[::every])
    usable = state.cluster.arrays.node_usable[there[::every]] != 0
    if record.job.only_on:
        usable &= state.cluster.hardware_index.nodes_selected(record.job.only_on)[there[::every]] != 0
    shape = max(state.cluster.words.shapes_of(record.demand), key=_compute)

    def room(number: int) -> int:
        resource = resources[number]
        return int((resource.free[usable] // resource.of(shape)).clip(min=0).sum())

    asked = [number for number, resource in enumerate(resources) if resource.of(shape)]
    return View(record.job.pool, every, min(asked, key=room, default=0))


def _resources(state: State, placer: Placer, nodes: Int64Array) -> tuple[Resource, ...]:
    arrays = state.cluster.arrays
    compute, cpu, memory = placer.selector.free_compute(), arrays.cpu_free_milli, arrays.memory_free_mib
    return (
        Resource(_compute, compute[nodes], CARD_MILLI),
        Resource(lambda shape: shape.cpu_milli, cpu[nodes], max(int(cpu[nodes].max(initial=0)) // 16, 1)),
        Resource(lambda shape: shape.memory_mib, memory[nodes], max(int(memory[nodes].max(initial=0)) // 16, 1)),
    )


class _AskedPart(NamedTuple):
    """How many tasks of one role, by index, must start, how much each takes, and the kinds of cards that will do."""

    tasks: int
    amount: int
    kinds: int
    role: int


class PoolModeller:
    """Makes the models of all questions that have a view in common.

    Attributes:
        every: one in so many nodes is looked at.
        runs: who runs there.
    """

    def __init__(self, state: State, placer: Placer, view: View) -> None:
        self._state = state
        self._pool = view.pool
        self._now = state.now
        self._standing = QueueRank(state)
        self._lines: dict[object, tuple[int, Demand]] = {}
        self._uncounted: dict[tuple[RequestClass, int], Demand] = {}
        """By request and mask of kinds of nodes."""
        self._groups: dict[Group, int] = {}
        ordering, settings = state.ordering, state.settings
        guards = isinstance(ordering, Default) and settings.reserve and not settings.preempt
        self._guard = ordering.guard if isinstance(ordering, Default) and guards else None
        self._lengths = Lengths(ordering.time_left, state.roster.live, state.now)
        self._capacity_milli = state.cluster.capacity.gpu_milli
        self._promised: dict[int, float] = {}
        self._displaces, self._by_class = ordering.displaces, self._has_classes_to_leave()
        self._leaves_for_others = self._displaces or self._by_class or state.queues.has_guarantees
        self._staying: dict[int, Candidate] = {}
        self._known: dict[int, InLine] = {}
        self.every = view.every
        nodes = state.cluster.hardware_index.numbers_of(view.pool)[:: view.every]
        self._nodes: list[int] = nodes.tolist()
        self._limits = LimitAccounts(state, self.every)
        self._index = {node: place for place, node in enumerate(self._nodes)}
        self._resource = _resources(state, placer, nodes)[view.resource]
        arrays = state.cluster.arrays
        self._kinds = [
            1 << int(arrays.device_model[arrays.first_device[node]]) if arrays.device_total[node] else EVERY_KIND
            for node in self._nodes
        ]
        self._will_do: dict[tuple[int, NodeSelection], bytes] = {}
        self._kept = KeptNodes(state)
        self.runs = list(self._running())
        self._bounds = self._law()
        self._empty = self._without_waiting()

    def has_nodes_for(self, record: JobRecord) -> bool:
        """Whether enough of the nodes that a job asks for by their labels are looked at."""
        if self.every == 1 or not record.job.only_on:
            return True
        return sum(self._nodes_that_will_do(EVERY_KIND, record.job.only_on)) >= NODES_PER_TASK * len(record.tasks)

    def line_up(self, order: PoolOrder, place: int) -> tuple[LineUp, int]:
        """The line-up of who stands at a place of all that wait for the pool, and their place in it."""
        own, alike = place // self.every, range(place % self.every, len(order), self.every)
        if own <= MOST_AHEAD:
            return LineUp(tuple(order.ranked(alike[: MOST_AHEAD + MOST_BEHIND]))), own
        *seen, last = order.ranked(alike[:MOST_AHEAD])
        target, *behind = order.ranked(alike[own : own + 1 + MOST_BEHIND])
        # The job stands where the part of the line ends that is looked at.
        moved = (last[0], last[1], target[2])
        return LineUp((*seen, moved, *behind), (own + 1) / MOST_AHEAD), MOST_AHEAD - 1

    def model(self, line_up: LineUp, *, fits_now: bool) -> PoolModel:
        """The pool, with those that wait.

        Args:
            fits_now: whether there may be room for them before anything has happened.
        """
        waiting = [self._waiting(*entry) for entry in line_up.ranked]
        bounds = self._bounds and self._bounds.fork()
        if bounds is not None:
            self._watch(waiting, bounds)
        reserved = self._limits.reserved()
        return replace(
            self._empty,
            waiting=FirstWaiting.of(waiting),
            spare=list(self._limits.spare),
            reserved=reserved,
            bounds=bounds,
            fits_now=fits_now,
        )

    def _watch(self, waiting: Sequence[InLine], bounds: WaitBounds) -> None:
        for entry in waiting:
            if entry.candidate.group >= 0:
                continue
            if entry.sequence in self._promised:
                bounds.promise(entry, self._promised[entry.sequence], 0.0)
            else:
                bounds.watch(entry, 0.0)

    def _without_waiting(self) -> PoolModel:
        state, arrays = self._state, self._state.cluster.arrays
        names = [state.cluster.node_name(node) for node in self._nodes]
        free = [
            amount - self._kept.now(name, self._resource.of_cards) if arrays.node_usable[node] else amount - CLOSED
            for node, name, amount in zip(self._nodes, names, self._resource.free.tolist(), strict=True)
        ]
        settings, ordering = state.settings, state.ordering
        return PoolModel(
            free, self._resource.unit, FirstWaiting.of(()), [], [],
            sorted(self._flips(names)),
            strict=ordering.strict,
            reserves=settings.reserve and not ordering.displaces,
            bounds=None,
            displacer=self._displacer(),
            has_guarantees=state.queues.has_guarantees,
            short_work=[] if self._guard is None else list(self._guard.running_milli),
            fits_now=False,
        )  # fmt: skip

    def _flips(self, names: Sequence[str]) -> Iterator[tuple[float, int, int]]:
        """What of which nodes closes and opens, and when."""
        state, place_of = self._state, {name: place for place, name in enumerate(names)}
        for flip in state.cordons.flips(state.now):
            if (place := place_of.get(flip.node)) is not None:
                yield flip.at - state.now, place, -CLOSED if flip.closed else CLOSED
        for name, place in place_of.items() if state.cordons.kept else ():
            for at, amount in self._kept.changes(name, self._resource.of_cards):
                yield at - state.now, place, amount

    def know(self, record: JobRecord) -> None:
        """Count the limits on a job that may come: futures begin with all accounts that they need."""
        self._limits.counted(record)

    # ---- who runs -----------------------------------------------------------------------------------------------

    def _running(self) -> Iterator[Running]:
        state, index = self._state, self._index
        for record in self._holders():
            taken = [
                (index[task.holding.node], self._given_back(task.holding))
                for task in record.tasks
                if task.holding is not None and task.holding.hold is HoldState.RUNNING and task.holding.node in index
            ]
            if not taken or record.suspended_by == BY_REQUEST:
                continue  # it ends only after it has been resumed, at an unknown instant
            expected_s = max(state.ordering.time_left.expected_end(record, state.now) - state.now, 0.0)
            own = self._lengths.of(record)
            length = self._as_held(record, own)
            is_leaving = record.state is JobState.STOPPING
            if is_leaving:
                expected_s = record.job.checkpoint.grace_s  # at the latest, whatever it would still have run
                length = Length(expected_s)
            begun_s = record.attained_s - record.service_s(state.now)
            entry, counted = self._held_entry(record, length), self._limits.counted_of_running(record)
            protected_s = self._protected_s(record)
            room = HeldRoom(entry, taken, expected_s, begun_s, counted, protected_s, record.took_back)
            leaves_s = self._leaves_s(record)
            is_known = is_leaving or leaves_s < NEVER or lasts(record) or own.is_known
            yield Running(room, length, is_known, leaves_s, self._kept.stays_until(record) - state.now)

    def _given_back(self, holding: Holding) -> int:
        """How much others can have when a task ends: of its cards, not those that are closed or faulty."""
        amount, devices = self._resource.of(holding.shape), holding.devices
        if self._resource.of is not _compute or not devices:
            return amount
        usable = self._state.cluster.arrays.device_usable_cells
        return amount * sum(usable[device] != 0 for device in devices) // len(devices)

    def _held_entry(self, record: JobRecord, length: Length) -> InLine:
        """A job that runs as it would wait again, if it may have to leave for another."""
        if self._leaves_for_others:
            return self._entry((*self._standing.rank_of_growth(record), 0.0), record.sequence, record, length)
        of_class = self._length_class(record)
        staying = self._staying.get(of_class)
        if staying is None:
            staying = Candidate(-1, Demand((), 0), (), Length(), 0.0, 0.0, length_class=of_class)
            self._staying[of_class] = staying
        return InLine((), record.sequence, record.submitted_at - self._now, staying)

    def _protected_s(self, record: JobRecord) -> float:
        """For how many seconds a running job is not asked to leave for others."""
        started_at = self._now if record.started_at is None else record.started_at
        return started_at + self._state.minimum_run_s(record) - self._now

    def _holders(self) -> list[JobRecord]:
        """Who may hold something of the nodes, in order of arrival."""
        state = self._state
        slots = state.roster.slots_on(np.array(self._nodes, dtype=np.int64)).tolist()
        found = [record for slot in slots if (record := state.roster.records[slot]) is not None]
        found += state.off_roster()
        return sorted(found, key=lambda record: record.sequence)

    def _leaves_s(self, record: JobRecord) -> float:
        """When a running job has to leave, in seconds: by its window, a drain, or as it is kept no longer."""
        state = self._state
        kept = record.kept
        if kept is not None:
            return (kept.kept_until or NEVER) - state.now
        if record.job.windows and is_in_window(state, record):
            return (windows.closes_at(record.job.windows, state.now) or NEVER) - state.now
        if not record.job.preemptible or not state.cordons.has_spans:
            return NEVER
        nodes = {task.placement.node for task in record.tasks if task.placement is not None}
        drains = [each.begin for node in nodes for each in state.cordons.by_node.get(node, ()) if each.drain]
        drains.append(self._kept.leaves_at(record))
        return min((begin - state.now for begin in drains if begin > state.now), default=NEVER)

    def length_of(self, record: JobRecord) -> Length:
        """How much longer a job holds its room; without end where nothing is known of it."""
        return self._as_held(record, self._lengths.of(record))

    def _as_held(self, record: JobRecord, length: Length) -> Length:
        if lasts(record) or not (self._lengths.has_learnt or length.is_known):
            return Length(NEVER)
        fetch_s = self._fetch_s(record) if record.job.contents and record.started_at is None else 0.0
        return replace(length, extra_s=length.extra_s + fetch_s) if fetch_s else length

    def _fetch_s(self, record: JobRecord) -> float:
        """For how long the nodes of a job that starts fetch what it needs; while it has none, what is usual of nodes.

        Which one it will have, and what that holds by then, is not known: those that hold it go first if they are free.
        """
        seconds = self._state.cluster.contents.fetch_s(record.job.contents)
        if seconds is None:
            return 0.0
        nodes = [task.holding.node for task in record.tasks if task.holding is not None]
        return float(seconds[nodes].max() if nodes else seconds[self._nodes].mean())

    # ---- who waits ----------------------------------------------------------------------------------------------

    def _waiting(self, rank: Rank, sequence: int, record: JobRecord) -> InLine:
        known = self._known.get(record.sequence)
        if known is not None and known[:2] == (rank, sequence):
            return known
        if record.promised_at and not record.overdue:
            self._promised[sequence] = record.promised_at - self._now
        entry = self._known[record.sequence] = self._entry(rank, sequence, record, self.length_of(record))
        return entry

    def _entry(self, rank: Rank, sequence: int, record: JobRecord, length: Length) -> InLine:
        return InLine(rank, sequence, record.submitted_at - self._now, self._candidate(record, length, rank))

    def candidate(self, record: JobRecord, length: Length) -> Candidate:
        """A job that has its key, as the model knows it."""
        return self._candidate(record, length, self._standing.rank(record))

    def _candidate(self, record: JobRecord, length: Length, rank: Rank) -> Candidate:
        state = self._state
        time_left, now = state.ordering.time_left, self._now
        line, demand = self._line_of(record)
        length_s, _ = time_left.needed_s(record, now)
        of_class, expected_s = self._length_class(record), record.expected_s or 0.0
        guard = None if of_class < 0 else self._guard
        return Candidate(
            line, demand, rank, length,
            expected_s=time_left.expected_end(record, now) - now,
            cautious_s=time_left.cautious_end(record, now) - now,
            length_class=of_class,
            spared=0.0 if guard is None else guard.spared_milli(expected_s, self._capacity_milli) / self.every,
            patience_s=0.0 if guard is None or record.overdue else LONGEST_DELAY * expected_s,
            stays_s=stays_until(record, time_left, now) - now if state.cordons.has_spans else 0.0,
            keeps_s=stays_beside_reserved(record, time_left, now) - now if state.reserved.by_name else 0.0,
            work=cards(record) * length_s,
            length_s=length_s,
            requeued_s=record.requeued_at - record.submitted_at,
            overdue=record.overdue,
            served_s=record.attained_s,
            may_leave=record.job.preemptible and record.preemptions < record.job.preemption_budget,
            restart_s=state.settings.preemption_cost.of(record.gpu_milli),
            loses_run=record.job.checkpoint.mode is CheckpointMode.NONE,
            minimum_run_s=state.minimum_run_s(record),
            displaces_above=record.displaces_above,
            weighing=self._weighing(record) if self._displaces else None,
            group=-1 if record.group is None else self._groups.setdefault(record.group, len(self._groups)),
            strict=record.group is not None and state.orderings.of(record.group).strict,
        )  # fmt: skip

    def _length_class(self, record: JobRecord) -> int:
        """That by which room is left to shorter work; -1 where that is nothing to a job."""
        expected_s = record.expected_s
        if self._guard is None or record.group is not None or expected_s is None or expected_s == NEVER:
            return -1
        return length_class(expected_s)

    # ---- who goes before others -----------------------------------------------------------------------------------

    def _weighing(self, record: JobRecord) -> Weighing:
        whole_s, exact, weight, charge, loss = self._state.ordering.sizes(record)
        stretch = self._standing.stretch(record)
        return Weighing(whole_s, exact > 0.0, record.size_class, weight, charge, loss, stretch)

    def _law(self) -> WaitBounds | None:
        state, pool = self._state, self._pool
        if not (state.settings.reserve and state.ordering.promotes):
            return None
        of_all = CARD_MILLI * self.every
        backlog = {
            -float(level): (work / of_all, jobs / self.every) for level, work, jobs in state.waiting.backlog.of(pool)
        }
        return WaitBounds(
            max(state.cluster.capacity.gpu_milli_of(pool), CARD_MILLI) / of_all,
            crowds=self._displaces,
            backlog=backlog,
            first_key=state.now - OVERDUE_LEAD,
        )

    def _has_classes_to_leave(self) -> bool:
        """Whether work of one class may leave for that of another, of those who run, wait and may come."""
        state = self._state
        alive = state.roster.live[SLOT_ALIVE] > 0.0
        classes = set(np.unique(state.waiting.table.figure(PRIORITY)).tolist())
        classes.update(np.unique(state.roster.live[SLOT_PRIORITY, alive]).tolist())
        classes.update(float(record.job.priority) for hour in state.arrivals.hours for record in hour.records)
        return len(classes) > 1

    def _displacer(self) -> Displacer | None:
        """Who leaves for whom, of those who run and who may come."""
        state = self._state
        if not self._leaves_for_others:
            return None
        held = sum(run.room.amount for run in self.runs)
        cards_held = state.queues.by_name[ROOT_QUEUE].gpu_milli
        earned = PREEMPTION_BUDGET * cards_held / CARD_MILLI / self.every / max(held, 1)
        ranks = state.ordering.time_left.survival.rank_table
        budget = state.preemption_budget.left / self.every
        preemption = Preemption(self._displaces, self._by_class, ranks, budget, earned)
        return Displacer(preemption, [run.room for run in self.runs])

    def _line_of(self, record: JobRecord) -> tuple[int, Demand]:
        """The number of a job's line, and what it asks for."""
        by_models = self._limits.counted(record)
        key = record.demand, by_models, record.group
        found = self._lines.get(key)
        if found is None:
            choices = tuple(self._demand(record, models, counted) for models, counted in by_models)
            demand = choices[0]
            if len(choices) > 1:
                demand = replace(self._demand(record, EVERY_KIND, Counted()), choices=choices)
            found = self._lines[key] = len(self._lines), demand
        return found

    def _demand(self, record: JobRecord, models: int, counted: Counted) -> Demand:
        """What a job asks for of nodes of some kinds; what tasks keep between them is each line's own."""
        key = record.demand, models
        found = self._uncounted.get(key)
        if found is None or found.spaced is not None:
            found = self._uncounted[key] = self._uncounted_demand(record, models)
        return Demand(found.parts, found.total, counted, spaced=found.spaced)

    def _uncounted_demand(self, record: JobRecord, models: int) -> Demand:
        job, shapes = record.job, self._state.cluster.words.shapes_of(record.demand)
        of_roles = (
            _AskedPart(role.minimum, self._resource.of(shape), shape.model_mask, index)
            for index, (role, shape) in enumerate(zip(job.roles, shapes, strict=True))
        )
        asked = sorted((part for part in of_roles if part.tasks), key=lambda part: -part.amount)
        parts = tuple(
            (part.tasks, part.amount, self._nodes_that_will_do(part.kinds & models, job.only_on)) for part in asked
        )
        cluster, spaced = self._state.cluster, None
        total = sum(part.tasks * part.amount for part in asked)
        spacing = spacing_of(cluster, job)
        if spacing is None and job.together_required and sum(part.tasks for part in asked) > 1:
            if job.together <= Level.NODE:
                will_do = np.bitwise_and.reduce([np.frombuffer(mask, dtype=np.uint8) for _, _, mask in parts])
                return Demand(((1, total, will_do.tobytes()),), total)
            spacing = spacing_in_groups(cluster, job)
        if spacing is not None:
            spaced = SpacedParts(parts, [part.role for part in asked], spacing, self._nodes, cluster.arrays.node_count)
        return Demand(parts, total, spaced=spaced)

    def _nodes_that_will_do(self, models: int, selection: NodeSelection) -> bytes:
        """(nodes,) 1 for those with cards of some models, or without any, that a job may have."""
        found = self._will_do.get((models, selection))
        if found is None:
            will_do = np.array([bool(kind & models) for kind in self._kinds], dtype=np.uint8)
            if selection:
                will_do &= self._state.cluster.hardware_index.nodes_selected(selection)[self._nodes]
            found = self._will_do[models, selection] = will_do.tobytes()
        return found


def _compute(shape: Shape) -> int:
    return shape.total_compute_milli
