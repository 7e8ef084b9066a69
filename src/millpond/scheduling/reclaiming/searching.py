"""The search: given who may be asked to leave, the least harmful way to make room for one whole job.

First without ending running work (``shrink``), then node by node: for each task a kernel finds the node on which
making room does the least harm. Where a limit is in the way, room is made under it too (``limits``). A gang that must
lie together is tried rack by rack (or node by node), the cheapest of the groups tried wins; one that only should is
brought together where that does no more harm. All of it happens on the trial ledger; the plan found stays there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from millpond.model.decisions import SuspendMode
from millpond.model.reasons import Cause
from millpond.scheduling.cycle.job_placement import Placed, Placer, spacing_of
from millpond.scheduling.elastic.gang_sizes import first_tasks, least_tasks, tasks_of_next_run
from millpond.scheduling.ledger.holdings import Holding
from millpond.scheduling.nodes.topology_groups import lie_together, near, preferred_groups, required_groups
from millpond.scheduling.placement.arrays import Int64Array, NodeMask
from millpond.scheduling.placement.kernels import KernelSet, interpreted
from millpond.scheduling.placement.selector import NO_NODE
from millpond.scheduling.placement.shapes import Shape
from millpond.scheduling.reclaiming import suspend_instead
from millpond.scheduling.reclaiming.attempts import Attempt, Rule
from millpond.scheduling.reclaiming.limits import make_room_under_limits
from millpond.scheduling.reclaiming.room_costs import RoomSearch
from millpond.scheduling.reclaiming.roster import (
    ROW_COMPUTE,
    ROW_DEVICES,
    ROW_NODE,
    ROW_SLOT,
)
from millpond.scheduling.reclaiming.shrink import Shrink
from millpond.scheduling.records import JobRecord, TaskRecord
from millpond.scheduling.state import State

GROUPS_TRIED = 32
"""Racks or nodes that are tried for one gang that must lie together: a bound on work."""

ROUNDING = 1.0 + 1e-9
"""Sums of harm are compared up to this much rounding."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A proved way to make room.

    Attributes:
        victims: jobs to end, in the order they were found.
        moved: jobs to end here and start again elsewhere, with their new places.
        shrunk: elastic gangs and the tasks they do without.
        suspended: those of the victims that need not end, and how they leave.
        placed: the place that the job gets.
        asked_later: more victims, too many to find in one cycle how they leave; they are asked in the next ones. Or
            those that are moved one after the other (``Cause.CONSOLIDATED``).
    """

    record: JobRecord
    victims: tuple[JobRecord, ...]
    moved: tuple[tuple[JobRecord, Placed], ...]
    shrunk: tuple[tuple[JobRecord, tuple[TaskRecord, ...]], ...]
    placed: Placed
    cause: Cause
    by_ordering: bool
    suspended: tuple[tuple[JobRecord, SuspendMode], ...] = ()
    asked_later: tuple[JobRecord, ...] = ()

    @property
    def is_needed(self) -> bool:
        """Whether anybody has to leave."""
        return bool(self.leaving or self.shrunk)

    @property
    def is_unfinished(self) -> bool:
        """Whether cycles that follow at once go on with it."""
        return bool(self.asked_later) and self.cause is not Cause.CONSOLIDATED

    @property
    def asked_now(self) -> tuple[JobRecord, ...]:
        """All jobs that are asked to leave as a whole in this cycle."""
        return (*self.victims, *(job for job, _ in self.moved))

    @property
    def leaving(self) -> tuple[JobRecord, ...]:
        """All jobs that leave as a whole."""
        return (*self.asked_now, *self.asked_later)


class VictimSearch:
    """Searches plans on a state.

    Attributes:
        found_room: whether departures made room somewhere in the last search, perhaps beyond the budget.
    """

    def __init__(self, state: State, placer: Placer) -> None:
        self._state = state
        self._placer = placer
        self._shrink = Shrink(state)
        self._rooms = RoomSearch(state.cluster.arrays, state.roster)
        self.found_room = False
        self.use_kernels(interpreted())

    def use_kernels(self, kernels: KernelSet) -> None:
        """Run on other kernels from now on; plans are the same."""
        self._rooms.use_kernels(kernels)

    def find(self, record: JobRecord, rule: Rule) -> Plan | None:
        """The cheapest plan found; kept on the trial ledger. None, and nothing changed, if there is none."""
        self.found_room = False
        job = record.job
        queued = list(rule.tasks) or record.queued()
        tasks = least_tasks(job, queued) if record.elastic and not rule.tasks else queued
        rule = replace(rule, mask=self._placer.within_allowed(record, tasks, rule.mask))
        attempt = (self._find_together if len(tasks) > 1 else self._attempt)(record, tasks, rule, rule.mask)
        if attempt is None:
            return None
        if len(queued) > len(tasks):
            self._extend(record, tasks, queued, attempt)
        asked_later: tuple[JobRecord, ...] = ()
        suspends = self._state.cluster.pools[job.pool].suspends and not rule.by_ordering
        if suspends and len(attempt.victims) > suspend_instead.ASKED_PER_CYCLE:
            asked_later, attempt.victims = tuple(attempt.victims), []
        shrunk: dict[str, tuple[JobRecord, list[TaskRecord]]] = {}
        for part in attempt.parts:
            if part.is_whole:
                attempt.victims.append(part.record)
            else:
                shrunk.setdefault(part.record.id, (part.record, []))[1].extend(part.tasks)
        suspended = () if rule.by_ordering else softened(self._state, record, attempt.placed, attempt.victims)
        return Plan(
            record,
            tuple(attempt.victims),
            tuple(attempt.targets),
            tuple((victim, tuple(left_out)) for victim, left_out in shrunk.values()),
            attempt.placed,
            rule.cause,
            rule.by_ordering,
            suspended,
            asked_later,
        )

    # ---- tasks that must lie together ---------------------------------------------------------------------------

    def _find_together(
        self, record: JobRecord, tasks: list[TaskRecord], rule: Rule, mask: NodeMask | None
    ) -> Attempt | None:
        """The cheapest attempt within one group, where that is required, or preferred and no dearer than elsewhere."""
        cluster, journal = self._state.cluster, self._state.journal
        required = required_groups(cluster, record.job)
        if required is not None:
            group = self._cheapest_group(record, tasks, rule, required)
            return None if group is None else self._attempt(record, tasks, rule, group)
        mark = journal.begin()
        attempt = self._attempt(record, tasks, rule, mask)
        for groups in preferred_groups(cluster, record.job):
            if attempt is None or lie_together(attempt.placed, groups):
                break
            journal.rollback(mark)
            group = self._cheapest_group(
                record, tasks, rule, groups, most=(attempt.cost * ROUNDING, len(attempt.parts))
            )
            mark = journal.begin()
            attempt = self._attempt(record, tasks, rule, mask if group is None else group)
        journal.commit()
        return attempt

    def _cheapest_group(
        self,
        record: JobRecord,
        tasks: list[TaskRecord],
        rule: Rule,
        groups: Int64Array,
        most: tuple[float, int] = (np.inf, 0),
    ) -> NodeMask | None:
        """The mask of the group in which room is made at the least cost; None if none costs as little as ``most``."""
        best, best_cost = None, (most[0], most[1] + 1)
        for mask in self._promising(record, tasks, rule, groups):
            mark = self._state.journal.begin()
            attempt = self._attempt(record, tasks, rule, mask)
            self._state.journal.rollback(mark)
            if attempt is not None and (attempt.cost, len(attempt.parts)) < best_cost:
                best, best_cost = mask, (attempt.cost, len(attempt.parts))
        return best

    def _promising(
        self, record: JobRecord, tasks: list[TaskRecord], rule: Rule, groups: Int64Array
    ) -> Iterator[NodeMask]:
        """Masks of the groups that could have enough compute, those first whose missing part costs least to free."""
        cluster, roster = self._state.cluster, self._state.roster
        count = cluster.arrays.node_count
        base = np.ones(count, dtype=np.uint8) if rule.mask is None else rule.mask[:count]
        base = base & (
            cluster.arrays.pool[:count] == cluster.words.shape_of(record.job.roles[0].request, record.job.pool).pool
        )
        asked = sum(record.job.roles[task.role_index].request.gpu_milli for task in tasks)
        totals = int(groups.max(initial=0)) + 1
        free = np.bincount(groups, self._placer.selector.free_compute() * base, totals)
        rows = roster.rows_of(np.flatnonzero(rule.harm < np.inf))
        rows = rows[base[roster.rows[ROW_NODE, rows]] != 0]
        milli = roster.rows[ROW_COMPUTE, rows] * roster.rows[ROW_DEVICES, rows]
        harm, group = rule.harm[roster.rows[ROW_SLOT, rows]], groups[roster.rows[ROW_NODE, rows]]
        able = free + np.bincount(group, milli, totals) >= asked
        able &= np.bincount(groups, base, totals) > 0
        order = np.lexsort((harm / np.maximum(milli, 1), group))
        upto = np.cumsum(milli[order])
        before = upto - milli[order]
        within = before - np.concatenate([np.zeros(1), np.cumsum(np.bincount(group, milli, totals))])[group[order]]
        needed = within < (asked - free)[group[order]]
        cost = np.bincount(group[order], harm[order] * needed, totals)
        candidates = np.flatnonzero(able)
        for chosen in candidates[np.argsort(cost[candidates], kind="stable")][:GROUPS_TRIED].tolist():
            yield (base * (groups == chosen)).astype(np.uint8)

    # ---- one try ------------------------------------------------------------------------------------------------

    def _attempt(self, record: JobRecord, tasks: list[TaskRecord], rule: Rule, mask: NodeMask | None) -> Attempt | None:
        """Make room and place the tasks on the trial ledger; None, and nothing changed, if that fails."""
        if rule.parts:
            attempt = self._try(record, tasks, Attempt(self._state, rule, mask), shrink=True)
            if attempt is not None:
                return attempt
        return self._try(record, tasks, Attempt(self._state, rule, mask), shrink=False)

    def _try(self, record: JobRecord, tasks: list[TaskRecord], attempt: Attempt, *, shrink: bool) -> Attempt | None:
        journal, rule = self._state.journal, attempt.rule
        mark = journal.begin()
        placed = None
        if shrink:
            attempt.parts = self._shrink.release(
                list(rule.parts), rule.is_open, record.job.pool, attempt.mask, under=rule.under
            )
            placed = self._placer.place(record, attempt.mask, tasks=tasks) if attempt.parts else None
            for part in attempt.parts:
                if part.record.slot >= 0:
                    # What is left of it is its minimum; the kernel would count what it gave up once more.
                    attempt.exclude(part.record.slot)
        attempt.placed = placed or self._place_all(record, tasks, attempt)
        amount = self._state.amounts.of_placed(record, attempt.placed)
        if attempt.placed and make_room_under_limits(self._state, record, amount, attempt):
            places = [(job, self._placer.place(job, rule.mask, tasks=tasks_of_next_run(job))) for job in attempt.moved]
            attempt.targets = [(job, place) for job, place in places if place]
            if attempt.parts:
                attempt.parts = self._shrink.give_back(
                    attempt.parts, lambda: self._state.entitlements.limiting(record, amount) is None
                )
            departures = attempt.victims or attempt.moved or attempt.parts
            if departures and len(attempt.targets) == len(attempt.moved):
                journal.commit()
                return attempt
        journal.rollback(mark)
        return None

    def _place_all(self, record: JobRecord, tasks: list[TaskRecord], attempt: Attempt) -> Placed:
        """Take holdings for the tasks, largest first, making room as needed; empty if that fails."""
        cluster = self._state.cluster
        shapes = cluster.words.shapes_of(record.demand)
        placed: Placed = []
        spacing, mask = spacing_of(cluster, record.job, record.tasks), attempt.mask
        for task in sorted(tasks, key=lambda task: -shapes[task.role_index].devices):
            if spacing is not None:
                attempt.narrow(spacing.within(task.role_index, mask))
            taken = self._take_one(record, shapes[task.role_index], attempt)
            if taken is None:
                return []
            placed.append((task, taken))
            if spacing is not None:
                spacing.take(task.role_index, taken.node)
        attempt.mask = mask
        return placed

    def _take_one(self, record: JobRecord, shape: Shape, attempt: Attempt) -> Holding | None:
        """Room for one task, free or made; None if there is none."""
        choice = self._placer.choose(record.job, shape, attempt.mask)
        if choice is not None:
            return self._placer.take(shape, choice)
        node = self._make_room(shape, attempt)
        return None if node == NO_NODE else self._placer.take_on(node, shape)

    def _make_room(self, shape: Shape, attempt: Attempt) -> int:
        """Release the cheapest victims on the trial ledger; returns the node with the room, or ``NO_NODE``."""
        vector, known = self._placer.selector.vector(shape), attempt.room_costs(shape)
        while True:
            node, chosen = self._rooms.cheapest(attempt, vector, known)
            self.found_room |= bool((known.costs < np.inf).any())
            if node < 0:
                return NO_NODE
            if attempt.release_all(chosen):
                return node

    def _extend(self, record: JobRecord, tasks: list[TaskRecord], queued: list[TaskRecord], attempt: Attempt) -> None:
        """An elastic job takes more than its minimum where the victims leave more room than that."""
        chosen = {task.number for task in tasks}
        rest = [task for task in queued if task.number not in chosen]
        rest = first_tasks(rest, lambda more: attempt.rule.may_grow([*tasks, *more]))
        mask = near(self._state.cluster, record.job, attempt.placed[0][1].node, attempt.rule.mask)
        mark = self._state.journal.begin()
        larger = [*attempt.placed, *self._placer.place_some(record, rest, mask)]
        if self._state.entitlements.limiting(record, self._state.amounts.of_placed(record, larger)) is None:
            attempt.placed = larger
            self._state.journal.commit()
        else:  # on models of cards of which less is left
            self._state.journal.rollback(mark)


def softened(
    state: State, record: JobRecord, placed: Placed, victims: Sequence[JobRecord]
) -> tuple[tuple[JobRecord, SuspendMode], ...]:
    """Let those off with a suspension who make room enough for a job by it."""
    amount = state.amounts.of_placed(record, placed)
    return suspend_instead.soften(state, victims, lambda: state.entitlements.limiting(record, amount) is None)
