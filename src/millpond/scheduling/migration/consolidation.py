"""Running work is gathered on fewer nodes, in pools that want it (``Pool.consolidates``): whole nodes come free.

For the first job of a pool that finds no room although enough cards are free: up to ``MOST_MOVED`` jobs move off the
nodes that it gets. And, while nobody waits in the pool, off a lightly used node, which is empty then and can be
switched off: all jobs of it move to nodes that have some. Only work that saves itself on notice moves, by an end and a
start (``migrations``); it keeps all the protections that it has against leaving for others.

Every move is paid back ``PAY_BACK`` times, by what is known of it then: what it costs in card-seconds, as learnt
(``recent_moves``), against the cards of the job that starts sooner, or of the node that is free sooner, for as long.
Further bounds are in ``move_bounds``. As each move that empties a node leaves one node less with work, moves end by
themselves while nothing else happens.

Source: Xiao et al., "Gandiva: introspective cluster scheduling for deep learning", OSDI 2018, section 3.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from millpond.model.decisions import Decision, Stop
from millpond.model.reasons import Cause
from millpond.model.resources import CARD_MILLI
from millpond.scheduling.cycle.claims import Claim, Claims, both
from millpond.scheduling.cycle.job_placement import Placed, Placer
from millpond.scheduling.cycle.reservations import Reserver
from millpond.scheduling.migration.migrations import Migrations
from millpond.scheduling.migration.move_bounds import HORIZON_S, PAY_BACK, MoveBounds, runs_wholly
from millpond.scheduling.placement.arrays import BoolArray, FloatArray, Int64Array, NodeMask
from millpond.scheduling.placement.kernels import KernelSet
from millpond.scheduling.reclaiming.attempts import Rule
from millpond.scheduling.reclaiming.roster import LEAST_MOVING_CARDS, SLOT_CARDS, SLOT_SAVES
from millpond.scheduling.reclaiming.searching import Plan, VictimSearch
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State

MOST_MOVED: Final = 4
"""So many jobs move for one that waits."""
NODES_TRIED: Final = 8
"""So many nodes one look tries to empty: a bound on work."""
LIGHTLY_USED: Final = 0.5
"""Nodes of which no more of the compute is held are emptied."""


class Consolidation:
    """Plans and begins moves within one state."""

    def __init__(
        self, state: State, placer: Placer, claims: Claims, migrations: Migrations, reserver: Reserver
    ) -> None:
        self._state = state
        self._placer = placer
        self._claims = claims
        self._migrations = migrations
        self._reserver = reserver
        self._bounds = MoveBounds(state, claims)
        self._search = VictimSearch(state, placer)

    def use_kernels(self, kernels: KernelSet) -> None:
        """Run on other kernels from now on; moves are the same."""
        self._search.use_kernels(kernels)

    @property
    def is_wanted(self) -> bool:
        """Whether any pool consolidates, and the whole order is not planned anew at each cycle."""
        state = self._state
        return state.cluster.consolidates and not (state.holds or state.replans)

    # ---- for a job that waits -----------------------------------------------------------------------------------

    def plan(self, record: JobRecord, mask: NodeMask | None, leaving: Iterable[JobRecord]) -> Plan | None:
        """A plan by which others move so that a waiting job gets its whole place; it stays on the trial ledger.

        Those who move are asked one after the other, by ``go_on``.

        Args:
            leaving: who leaves, wholly or in part, by other plans on the trial ledger: none of them is moved.
        """
        state, pool, asked = self._state, record.job.pool, record.demand.least_amount.gpu_milli
        if not state.cluster.pools[pool].consolidates or record.job.is_background or self._is_gathering(pool):
            return None
        if asked < LEAST_MOVING_CARDS * CARD_MILLI or asked > state.cluster.idle_milli().get(pool, 0):
            return None
        kept = self._reserver.reserve(record)
        sooner_s = HORIZON_S if kept is None else min(kept.at - state.now, HORIZON_S)
        costs = self._costs()
        costs[costs * PAY_BACK > sooner_s * asked / CARD_MILLI] = np.inf
        costs[[job.slot for job in leaving if job.slot >= 0]] = np.inf
        if not (costs < np.inf).any():
            return None
        nobody = np.full(len(costs), np.inf)
        rule = Rule(Cause.CONSOLIDATED, nobody, -costs, mask, lambda _: False, move_harm=costs)
        mark = state.journal.begin()
        plan = self._search.find(record, rule)
        if plan is None or not self._is_sound(plan) or not self._pays(plan, asked, sooner_s):
            state.journal.rollback(mark)
            return None
        for job, placed in plan.moved:
            state.charge(job, state.amounts.of_placed(job, placed), 1)
            state.limits.count(job, 1)
        state.journal.commit()
        return replace(plan, moved=(), asked_later=tuple(job for job, _ in plan.moved))

    def _is_sound(self, plan: Plan) -> bool:
        """Whether those who move run wholly, and still have their places once the nodes of the plan are kept."""
        claims, cells = self._claims, self._state.cluster.cells
        kept = {holding.node for _, holding in plan.placed}
        for job, placed in plan.moved:
            beside = both(claims.mask_without(job, [plan.record.id]), claims.mask_of_closings(job))
            mask = both(beside, cells.mask(job))
            nodes = {holding.node for _, holding in placed}
            if not runs_wholly(job) or nodes & kept or (mask is not None and not mask[list(nodes)].all()):
                return False
        return True

    def _is_gathering(self, pool: str) -> bool:
        """Whether others are to move for a job of the pool already."""
        jobs = self._state.jobs
        return any(
            claim.asks and claim.cause is Cause.CONSOLIDATED and jobs[job].job.pool == pool
            for job, claim in self._claims.by_job.items()
        )

    def _pays(self, plan: Plan, gpu_milli: int, sooner_s: float) -> bool:
        """Whether few enough move, and what starts for it, at worst once one after the other has arrived, is worth it.

        Args:
            sooner_s: how much sooner so much compute would be at work with its place at once, as far as that counts.
        """
        costs_s = [(self._bounds.restart_cost_s(job), job.gpu_milli) for job, _ in plan.moved]
        saved_s = sooner_s - sum(cost_s for cost_s, _ in costs_s)
        is_paid_back = saved_s * gpu_milli >= PAY_BACK * sum(cost_s * milli for cost_s, milli in costs_s)
        return is_paid_back and 0 < len(costs_s) <= MOST_MOVED

    def go_on(self) -> None:
        """Ask those who are to move for a waiting job, as many as may move at once.

        One that finds no other place any more stays, and so do those behind it: the job waits on as all others do.
        """
        for job, claim in list(self._claims.by_job.items()):
            if claim.asks and claim.cause is Cause.CONSOLIDATED:
                self._ask_next(self._state.jobs[job], claim)

    def _ask_next(self, record: JobRecord, claim: Claim) -> None:
        self._claims.end_reservation(record)
        unasked = [job for job, _ in self._claims.present(claim) if job.slot >= 0]
        for job in unasked:
            if not self._bounds.may_begin([job]):
                return
            placed = self._place_aside(job, self._claims.mask(job))
            if placed is None:
                self._claims.drop(record.id)
                return
            self._move(job, placed, record.id)
        self._claims.put(record.id, replace(claim, asks=False))

    # ---- to empty a node ----------------------------------------------------------------------------------------

    def empty_nodes(self) -> None:
        """In each pool in which nobody waits, move all work of one lightly used node to others that have some."""
        state, claimed = self._state, self._claims.by_job
        if not state.moves.may_look(state.now):
            return
        waiting = {
            next((job.job.pool for _, _, job in line if job.id not in claimed and not job.job.is_background), "")
            for line in state.waiting.lines.values()
        }
        wanting = [name for name, pool in state.cluster.pools.items() if pool.consolidates and name not in waiting]
        if not sum(self._empty_node(name) for name in wanting if not self._is_gathering(name)):
            state.moves.looked_at = state.now

    def _empty_node(self, pool: str) -> bool:
        """Move all work off one node, if there is one that is worth it."""
        held, is_open = self._held_milli(pool)
        capacity = CARD_MILLI * self._state.cluster.arrays.device_total[: len(held)]
        sources = np.flatnonzero(is_open & (held > 0))
        if np.sort(capacity[sources])[1:].sum() < held[sources].sum():
            return False  # even if all lay side by side, they would take as many nodes
        sources = sources[held[sources] <= LIGHTLY_USED * capacity[sources]]
        self._placer.refresh()
        self._state.ordering.time_left.refresh(self._state.roster, self._state.now)
        costs = self._costs()
        ends = self._state.ordering.time_left.ends(self._state.roster.live, self._state.now)
        for source in sources[np.argsort(held[sources], kind="stable")][:NODES_TRIED].tolist():
            jobs = self._all_movable(source, int(held[source]), costs)
            if not jobs or not self._bounds.may_begin(jobs):
                continue
            targets = is_open & (held > 0)
            targets[source] = False
            fuller = targets & (held > held[source])
            found = self._places_on(jobs, fuller) or self._places_on(jobs, targets)
            if found and self._frees_enough(source, found, ends):
                for job, placed in found:
                    self._move(job, placed)
                return True
        return False

    def _held_milli(self, pool: str) -> tuple[Int64Array, BoolArray]:
        """(nodes,) the compute that is held of each; and whether it is an open one of the pool."""
        cluster, arrays = self._state.cluster, self._state.cluster.arrays
        count = arrays.node_count
        total = arrays.device_total[:count]
        owner = np.repeat(np.arange(count), total)
        free = np.bincount(owner, arrays.compute_free_milli[: arrays.device_count], count).astype(np.int64)
        is_open = (arrays.pool[:count] == cluster.words.pools.number(pool)) & (arrays.node_usable[:count] != 0)
        held: Int64Array = total * CARD_MILLI - free
        return held, is_open

    def _all_movable(self, node: int, held_milli: int, costs: FloatArray) -> list[JobRecord]:
        """All jobs on a node, the largest first, if all may move and hold all that is held there; else none."""
        roster = self._state.roster
        slots = [slot for slot in roster.slots_on(np.array([node])).tolist() if node in roster.nodes_of(slot)]
        jobs = [job for slot in slots if costs[slot] < np.inf and (job := roster.records[slot]) is not None]
        if len(jobs) < len(slots) or not all(map(runs_wholly, jobs)):
            return []
        there = [task.holding for job in jobs for task in job.tasks if task.holding and task.holding.node == node]
        if sum(holding.shape.total_compute_milli for holding in there) != held_milli:
            return []
        return sorted(jobs, key=lambda job: (-job.gpu_milli, job.sequence))

    def _places_on(self, jobs: Sequence[JobRecord], targets: BoolArray) -> list[tuple[JobRecord, Placed]]:
        """Places for all of these jobs on some nodes; none if one of them finds none. Nothing is taken."""
        journal = self._state.journal
        mark, found = journal.begin(), list[tuple[JobRecord, Placed]]()
        for job in jobs:
            placed = self._migrations.places.take(job, both(self._claims.mask(job), targets.astype(np.uint8)))
            if placed is None:
                found.clear()
                break
            found.append((job, placed))
        journal.rollback(mark)
        return found

    def _frees_enough(self, source: int, found: Sequence[tuple[JobRecord, Placed]], ends: FloatArray) -> bool:
        """Whether the cards of a node are free for long enough: until its work, or that on the others, would end."""
        state, roster = self._state, self._state.roster
        own = {job.slot for job, _ in found}
        until = max(float(ends[slot]) for slot in own)
        for node in {holding.node for _, placed in found for _, holding in placed if holding.node != source}:
            others = [float(ends[slot]) for slot in roster.slots_on(np.array([node])).tolist() if slot not in own]
            until = min(until, max(others, default=state.now))
        saved_s = min(until - state.now, HORIZON_S) - max(self._bounds.restart_cost_s(job) for job, _ in found)
        cards = int(state.cluster.arrays.device_total[source])
        return saved_s * cards * CARD_MILLI >= PAY_BACK * sum(
            self._bounds.restart_cost_s(job) * job.gpu_milli for job, _ in found
        )

    # ---- who may move, and what it costs ------------------------------------------------------------------------

    def _costs(self) -> FloatArray:
        """(slots,) what moving each running job costs, in card-seconds; infinite for those that may not be moved."""
        slots = self._state.roster.live
        may_move = self._bounds.may_move() & (slots[SLOT_SAVES] > 0.0) & (slots[SLOT_CARDS] >= 1.0)
        costs: FloatArray = np.where(may_move, self._bounds.restart_costs(), np.inf)
        return costs

    def redo(self, decided: Sequence[Decision]) -> None:
        """Moves were decided by a cycle that was carried out again from a log, and the claims of then are there."""
        for decision in decided:
            if isinstance(decision, Stop) and decision.cause is Cause.CONSOLIDATED:
                job, claim = self._state.jobs[decision.job], self._claims.by_job.get(decision.job)
                if claim is not None:
                    self._state.moves.note(job, self._state.now)

    # ---- one move -----------------------------------------------------------------------------------------------

    def _place_aside(self, job: JobRecord, mask: NodeMask | None) -> Placed | None:
        mark = self._state.journal.begin()
        placed = self._migrations.places.take(job, mask)
        self._state.journal.rollback(mark)
        return placed

    def _move(self, job: JobRecord, placed: Placed, for_job: str = "") -> None:
        self._migrations.restart_on(job, placed, Cause.CONSOLIDATED, for_job)
        self._state.moves.note(job, self._state.now)
