"""A pool as the futures of an estimate see it: nodes with room of one resource, who holds it, who waits, and who comes.

The resource is the one of which there is least room for the job that is asked about: cards, CPU or memory. Ranks are
those of now. Of a large pool every n-th node stands for all, and then every n-th of the other jobs; of a long line the
first part does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from millpond.model import windows
from millpond.model.resources import CARD_MILLI
from millpond.model.workloads import CheckpointMode
from millpond.scheduling.cycle.job_placement import Placer
from millpond.scheduling.estimating.displacer import Preemption
from millpond.scheduling.estimating.futures import PoolModel
from millpond.scheduling.estimating.lengths import Length, Lengths, lasts
from millpond.scheduling.estimating.limit_accounts import LimitAccounts
from millpond.scheduling.estimating.possible_jobs import Candidate, Demand, Entry, HeldRoom, Weighing
from millpond.scheduling.estimating.wait_bounds import WaitBounds
from millpond.scheduling.ledger.holdings import HoldState
from millpond.scheduling.nodes.cordon import stays_until
from millpond.scheduling.ordering.base import cards
from millpond.scheduling.ordering.default import Default
from millpond.scheduling.ordering.forecasts import NEVER
from millpond.scheduling.ordering.guard import LONGEST_DELAY, length_class
from millpond.scheduling.placement.arrays import Int64Array
from millpond.scheduling.placement.shapes import Shape
from millpond.scheduling.reclaiming.preemption_budget import PREEMPTION_BUDGET
from millpond.scheduling.records import BY_REQUEST, Group, JobRecord
from millpond.scheduling.state import OVERDUE_LEAD, State
from millpond.scheduling.tenancy.queue_rank import QueueRank, Rank

FloatArray = NDArray[np.float64]

MOST_NODES = 96
"""Of a pool of twice as many nodes or more, not all are looked at, but at least so many,"""

NODES_PER_TASK = 3
"""and so many for each task of the job."""

MOST_AHEAD = 1000
"""Jobs ahead that are looked at; those behind them are taken to move up at the same pace."""

MOST_BEHIND = 300
"""Jobs behind that are looked at: they may start first all the same."""

_CLOSED = 1 << 50
"""Less room on a closed node."""


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


class PoolModeller:
    """Makes the model of one question.

    Attributes:
        every: one in so many nodes is looked at.
        runs: who runs there, with the length that is left and the seconds after which it has to leave.
        ahead: how many jobs of the pool are ahead.
        pace: by what the model's wait has to be multiplied, as its line is shorter than the real one.
    """

    def __init__(self, state: State, placer: Placer, record: JobRecord) -> None:
        self._state = state
        self._record = record
        self._standing = QueueRank(state)
        self._lines: dict[object, tuple[int, Demand]] = {}
        self._groups: dict[Group, int] = {}
        ordering, settings = state.ordering, state.settings
        guards = isinstance(ordering, Default) and settings.reserve and not settings.preempt
        self._guard = ordering.guard if isinstance(ordering, Default) and guards else None
        self._lengths = Lengths(ordering.time_left, state.roster.live, state.now)
        self.runs: list[tuple[HeldRoom, Length, float]] = []
        self._promised: dict[int, float] = {}
        self._displaces = ordering.displaces
        self.ahead = 0
        self.pace = 1.0
        self._nodes, self.every = self._looked_at()
        self._limits = LimitAccounts(state, self.every)
        self._index = {node: place for place, node in enumerate(self._nodes)}
        self._resource = self._scarcest(placer)

    def model(self, *, fits_now: bool) -> PoolModel:
        """The pool as it is now.

        Args:
            fits_now: whether the job may start before anything has happened.
        """
        state = self._state
        arrays = state.cluster.arrays
        free = [
            amount if arrays.node_usable[node] and not self._is_reserved(node) else amount - _CLOSED
            for node, amount in zip(self._nodes, self._resource.free.tolist(), strict=True)
        ]
        first = arrays.first_device
        kinds = [
            1 << int(arrays.device_model[first[node]]) if arrays.device_total[node] else -1 for node in self._nodes
        ]
        self._count_running()
        target, waiting = self._line_up()
        numbers, index = state.cluster.node_index, self._index
        flips = [
            (flip.at - state.now, index[numbers[flip.node]], -_CLOSED if flip.closed else _CLOSED)
            for flip in state.cordons.flips(state.now)
            if numbers.get(flip.node) in index
        ]
        settings, ordering = state.settings, state.ordering
        return PoolModel(
            free, kinds, self._resource.unit, [run for run, _, _ in self.runs],
            waiting, target, self._limits.spare, flips,
            strict=ordering.strict,
            reserves=settings.reserve and not ordering.displaces,
            bounds=self._bounds(waiting),
            preemption=self._preemption(),
            short_work=[] if self._guard is None else self._guard.running_milli,
            fits_now=fits_now,
        )  # fmt: skip

    def _is_reserved(self, node: int) -> bool:
        """Whether cards of a node are reserved for others now."""
        state = self._state
        return bool(state.cordons.kept) and state.cordons.is_kept(state.cluster.node_name(node), state.now)

    # ---- nodes --------------------------------------------------------------------------------------------------

    def _looked_at(self) -> tuple[list[int], int]:
        """The nodes, and one in how many of the pool they are."""
        cluster = self._state.cluster
        count = cluster.arrays.node_count
        pool = cluster.words.shapes_of(self._record.demand)[0].pool
        there = [int(node) for node in np.flatnonzero(cluster.arrays.pool[:count] == pool) if cluster.nodes[node]]
        every = max(len(there) // max(MOST_NODES, NODES_PER_TASK * len(self._record.tasks)), 1)
        return there[::every], every

    def _scarcest(self, placer: Placer) -> Resource:
        """The resource of which there is least room for the largest task of the job."""
        arrays, nodes = self._state.cluster.arrays, np.array(self._nodes, dtype=np.int64)
        compute, cpu, memory = placer.selector.free_compute(), arrays.cpu_free_milli, arrays.memory_free_mib
        shape = max(self._state.cluster.words.shapes_of(self._record.demand), key=_compute)
        resources = [
            Resource(_compute, compute[nodes], 1000),
            Resource(_cpu, cpu[nodes], max(int(cpu[nodes].max(initial=0)) // 16, 1)),
            Resource(_memory, memory[nodes], max(int(memory[nodes].max(initial=0)) // 16, 1)),
        ]
        usable = arrays.node_usable[nodes] != 0

        def room(resource: Resource) -> int:
            return int((resource.free[usable] // resource.of(shape)).clip(min=0).sum())

        return min((each for each in resources if each.of(shape)), key=room, default=resources[0])

    def know(self, record: JobRecord) -> None:
        """Count the limits on a job that may come: futures begin with all accounts that they need."""
        self._line_of(record)

    # ---- who runs -----------------------------------------------------------------------------------------------

    def _count_running(self) -> None:
        state, index = self._state, self._index
        for record in state.running.values():
            taken = [
                (index[task.holding.node], self._resource.of(task.holding.shape))
                for task in record.tasks
                if task.holding is not None and task.holding.hold is HoldState.RUNNING and task.holding.node in index
            ]
            if not taken or record.suspended_by == BY_REQUEST:
                continue  # it ends only after it has been resumed, at an unknown instant
            expected_s = max(state.ordering.time_left.expected_end(record, state.now) - state.now, 0.0)
            length = self.length_of(record)
            begun_s = record.attained_s - record.service_s(state.now)
            rank = (*self._standing.rank_of_growth(record), 0.0)
            run = HeldRoom(self._entry(rank, record.sequence, record, length), taken, expected_s, begun_s)
            self.runs.append((run, length, self._leaves_s(record)))

    def _leaves_s(self, record: JobRecord) -> float:
        """When a running job has to leave, in seconds: by its window, a drain, or as it is kept no longer."""
        state = self._state
        kept = record.kept
        if kept is not None:
            return (kept.kept_until or NEVER) - state.now
        if record.job.windows and state.is_in_window(record):
            return (windows.closes_at(record.job.windows, state.now) or NEVER) - state.now
        if not record.job.preemptible or not state.cordons.has_spans:
            return NEVER
        nodes = {task.placement.node for task in record.tasks if task.placement is not None}
        drains = [each.begin for node in nodes for each in state.cordons.by_node.get(node, ()) if each.drain]
        drains += [begin for node in nodes for begin, _ in state.cordons.kept.get(node, ())]
        return min((begin - state.now for begin in drains if begin > state.now), default=NEVER)

    def length_of(self, record: JobRecord) -> Length:
        return Length(NEVER) if lasts(record) else self._lengths.of(record)

    # ---- who waits ----------------------------------------------------------------------------------------------

    def _line_up(self) -> tuple[Entry, list[Entry]]:
        """The job, and all that wait, in order."""
        pool, place_of = self._record.job.pool, self._standing.place_of
        ranked = sorted((*place_of(record), record) for record in self._state.waiting if record.job.pool == pool)
        place = next(place for place, entry in enumerate(ranked) if entry[2] is self._record)
        self.ahead = place
        ahead = ranked[: place : self.every]
        seen = ahead[:MOST_AHEAD]
        if len(ahead) > len(seen):
            self.pace = (len(ahead) + 1) / (len(seen) + 1)
        behind = [] if self._state.ordering.strict else ranked[place + 1 :: self.every][:MOST_BEHIND]
        last, own = ranked[place], ranked[place]
        if self.pace > 1.0:
            last = seen.pop()  # the job stands where the part of the line ends that is looked at
        target = self._waiting(last[0], last[1], own[2])
        entries = [self._waiting(*entry) for entry in seen], [self._waiting(*entry) for entry in behind]
        return target, [*entries[0], target, *entries[1]]

    def _waiting(self, rank: Rank, sequence: int, record: JobRecord) -> Entry:
        if record.promised_at and not record.overdue:
            self._promised[sequence] = record.promised_at - self._state.now
        return self._entry(rank, sequence, record, self.length_of(record))

    def _entry(self, rank: Rank, sequence: int, record: JobRecord, length: Length) -> Entry:
        return rank, sequence, record.submitted_at - self._state.now, self._candidate(record, length, rank)

    def candidate(self, record: JobRecord, length: Length) -> Candidate:
        """A job that has its key, as the model knows it."""
        return self._candidate(record, length, self._standing.rank(record))

    def _candidate(self, record: JobRecord, length: Length, rank: Rank) -> Candidate:
        state = self._state
        time_left, now = state.ordering.time_left, state.now
        line, demand = self._line_of(record)
        length_s, _ = time_left.needed_s(record, now)
        candidate = Candidate(
            line, demand, rank, length,
            expected_s=time_left.expected_end(record, now) - now,
            cautious_s=time_left.cautious_end(record, now) - now,
            stays_s=stays_until(record, time_left, now) - now if state.cordons.has_spans else 0.0,
            work=cards(record) * length_s,
            length_s=length_s,
            requeued_s=record.requeued_at - record.submitted_at,
            overdue=record.overdue,
            served_s=record.attained_s,
            may_leave=record.job.preemptible and record.preemptions < record.job.preemption_budget,
            restart_s=state.settings.preemption_cost.of(record.gpu_milli),
            loses_run=record.job.checkpoint.mode is CheckpointMode.NONE,
            displaces_above=record.displaces_above,
            weighing=self._weighing(record) if self._displaces else None,
            group=-1 if record.group is None else self._groups.setdefault(record.group, len(self._groups)),
            strict=record.group is not None and state.orderings.of(record.group).strict,
        )  # fmt: skip
        expected_s = record.expected_s
        if self._guard is None or expected_s is None or record.group is not None:
            return candidate
        return replace(
            candidate,
            length_class=length_class(expected_s),
            spared=self._guard.spared_milli(expected_s, state.cluster.gpu_capacity_milli) / self.every,
            patience_s=0.0 if record.overdue else LONGEST_DELAY * expected_s,
        )

    # ---- who goes before others -----------------------------------------------------------------------------------

    def _weighing(self, record: JobRecord) -> Weighing:
        whole_s, exact, weight, charge, loss = self._state.ordering.sizes(record)
        return Weighing(whole_s, exact > 0.0, record.size_class, weight, charge, loss)

    def _bounds(self, waiting: list[Entry]) -> WaitBounds | None:
        state, pool = self._state, self._record.job.pool
        if not (state.settings.reserve and state.ordering.promotes):
            return None
        of_all = CARD_MILLI * self.every
        backlog = {
            -float(level): (work / of_all, jobs / self.every) for level, work, jobs in state.waiting.backlog.of(pool)
        }
        bounds = WaitBounds(
            max(state.cluster.gpu_capacity_of(pool), CARD_MILLI) / of_all,
            crowds=self._displaces,
            backlog=backlog,
            first_key=state.now - OVERDUE_LEAD,
        )
        for entry in waiting:
            if entry[3].group >= 0:
                continue
            if entry[1] in self._promised:
                bounds.promise(entry, self._promised[entry[1]], 0.0)
            else:
                bounds.watch(entry, 0.0)
        return bounds

    def _preemption(self) -> Preemption | None:
        state = self._state
        classes = {record.job.priority for record in (*state.waiting, *state.running.values())}
        by_class = state.settings.preempt_by_priority and len(classes) > 1
        if not (by_class or self._displaces):
            return None
        held = sum(amount for run, _, _ in self.runs for _, amount in run.taken)
        cards_held = state.cluster.gpu_capacity_milli - state.cluster.free_gpu_milli
        earned = PREEMPTION_BUDGET * cards_held / CARD_MILLI / self.every / max(held, 1)
        ranks = state.ordering.time_left.survival.rank_table
        return Preemption(self._displaces, by_class, ranks, state.preemption_budget.left / self.every, earned)

    def _line_of(self, record: JobRecord) -> tuple[int, Demand]:
        """The number of a job's line, and what it asks for."""
        charges = self._limits.charges(record)
        key = (record.demand, charges, record.group)
        found = self._lines.get(key)
        if found is None:
            shapes = self._state.cluster.words.shapes_of(record.demand)
            pairs = zip(record.job.roles, shapes, strict=True)
            amounts = ((role.minimum, self._resource.of(shape), shape.model_mask) for role, shape in pairs)
            parts = tuple(sorted((part for part in amounts if part[0]), key=lambda part: -part[1]))
            demand = Demand(parts, sum(count * amount for count, amount, _ in parts), charges)
            found = self._lines[key] = len(self._lines), demand
        return found


def _compute(shape: Shape) -> int:
    return shape.total_compute_milli


def _cpu(shape: Shape) -> int:
    return shape.cpu_milli


def _memory(shape: Shape) -> int:
    return shape.memory_mib
