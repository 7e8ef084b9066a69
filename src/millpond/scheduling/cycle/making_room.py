"""Making room for a job that has no place: which rule may have running work leave for it, the least disruptive first.

Background work leaves for any other; a queue within its guarantee takes back what others borrowed; a higher class ends
lower work; gangs whose speed was measured give growth to their equals; the ordering displaces equals. For the first job
of a pool that none of these helps, others may be moved together (``migration.consolidation``). What may not be
asked for is known before anything is searched, as far as it can be. ``reclaiming.plans`` makes the plan of each rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from millpond.model.states import TaskState
from millpond.model.workloads import Priority
from millpond.scheduling.cycle.cell_placement import CellPlacer
from millpond.scheduling.cycle.claims import Claims, KeptOff, both
from millpond.scheduling.cycle.prospects import Departures
from millpond.scheduling.cycle.reservations import Reserver
from millpond.scheduling.cycle.reserved_places import ReservedPlaces, leaves_kept
from millpond.scheduling.elastic.gang_sizes import first_tasks
from millpond.scheduling.elastic.growth import mask_for_growth, may_join, missing_tasks
from millpond.scheduling.feasibility.request_classes import RequestClass
from millpond.scheduling.migration.consolidation import Consolidation
from millpond.scheduling.placement.arrays import NodeMask
from millpond.scheduling.reclaiming.plans import Planner
from millpond.scheduling.reclaiming.searching import Plan
from millpond.scheduling.records import JobRecord
from millpond.scheduling.reserving.counted_reservations import fits_ahead, is_covered_beside_reserved
from millpond.scheduling.suspension.suspension import is_leaving
from millpond.scheduling.tenancy.admission import (
    is_guaranteed,
    is_held_for_good,
    is_limited_by_user,
    limit_in_the_way,
)


class RoomMaker:
    """Finds plans in the walks of one state. A plan that is found stays on the trial ledger.

    Attributes:
        departures: who may leave for others at all, by class and by the ordering, in the present walk.
    """

    def __init__(
        self,
        reserver: Reserver,
        planner: Planner,
        claims: Claims,
        reserved: ReservedPlaces,
        cells: CellPlacer,
        consolidation: Consolidation,
    ) -> None:
        self._state = reserver.state
        self._reserver = reserver
        self._planner = planner
        self._claims = claims
        self._reserved = reserved
        self._cells = cells
        self._consolidation = consolidation
        self.departures = Departures(float("inf"), None)
        self._lowest = float("inf")
        self._has_background = self._has_grown = False
        self._in_vain: set[tuple[RequestClass, KeptOff]] = set()
        """For which requests background work would leave in vain in this walk, with what keeps them off nodes."""

    def begin_walk(self) -> None:
        """See who may leave in this walk."""
        state = self._state
        self._lowest = self._lowest_class()
        self._has_background = self._lowest == Priority.BACKGROUND
        displaces = state.ordering.displaces and self._claims.displaced_at < state.now
        # What gangs have grown by is given to those of their own class too.
        grown = float("inf")
        if state.elastic:
            grown = min((record.job.priority - 1.0 for record in self._planner.grown()), default=grown)
        self._has_grown = grown < float("inf")
        self.departures = Departures(min(self._lowest, grown), self._planner.bounds if displaces else None)
        self._in_vain.clear()

    def _lowest_class(self) -> float:
        """The lowest class of priority among all work that holds something; infinite when there is none."""
        state, lowest = self._state, self._state.roster.least_priority()
        for jobs in (state.suspended, state.kept):
            for record in jobs.values():
                lowest = min(lowest, float(record.job.priority))
        return lowest

    def note_departures(self) -> None:
        """A plan was kept: there is more room now, and less that could leave."""
        self._in_vain.clear()

    def might(self, record: JobRecord) -> bool:
        """A quick check whether any rule could make work leave for the job."""
        return not record.job.is_background and (
            self.departures.lowest_class < record.job.priority
            or is_guaranteed(self._state, record)
            or self._might_displace(record)
        )

    def _might_displace(self, record: JobRecord) -> bool:
        """Whether running work that comes far enough behind the job in the ordering could leave room for it."""
        bounds = self.departures.bounds
        return bounds is not None and not bounds.exclude(record)

    def plan(self, record: JobRecord) -> Plan | None:
        """The least disruptive allowed plan that gives the job its whole place; None for background work."""
        if record.job.is_background:
            return None
        return self._cells.keep_sound(lambda: next((plan for plan in self._plans(record) if plan is not None), None))

    def plan_moves(self, record: JobRecord) -> Plan | None:
        """A plan by which others are moved together, in pools that want that; for the first job without room."""
        if not self._state.cluster.pools[record.job.pool].consolidates:
            return None
        mask, leaving = self._claims.mask(record), self._planner.leaving
        plan = self._cells.keep_sound(lambda: self._consolidation.plan(record, mask, leaving))
        if plan is not None:
            self._planner.leave(plan)
        return plan

    def _plans(self, record: JobRecord) -> Iterator[Plan | None]:
        """What each rule comes to that may have work leave for the job, the least disruptive first.

        A plan stays on the trial ledger, so no rule is asked once one has found a plan.
        """
        if self._has_background:
            yield self._clear_background(record)
        if is_guaranteed(self._state, record) and is_covered_beside_reserved(self._state, record):
            yield self._planner.by_guarantee(record, self._mask_for_guarantee(record))
            yield self._beside_kept(record)
        if self._lowest < record.job.priority:
            yield self._planner.by_priority(record, self._claims.mask(record))
        if self._has_grown:
            yield self._planner.of_growth(record, self._claims.mask(record))
        if self._might_displace(record):
            yield self._planner.by_ordering(record, self._claims.mask(record))

    def _clear_background(self, record: JobRecord) -> Plan | None:
        """A plan by which background work alone leaves."""
        queues, least = self._state.queues, record.demand.least_amount
        if least.gpu_milli > self._state.cluster.free_gpu_milli + queues.background.gpu_milli:
            return None
        request = record.demand, self._claims.kept_off(record)
        if request in self._in_vain:
            return None
        plan = self._planner.of_background(record, self._claims.mask(record))
        if plan is None and self._claims.keeps_out(record):
            plan = self._clear_background_beside(record)
        if plan is None and not queues.counts_cards:
            self._in_vain.add(request)
        return plan

    def _clear_background_beside(self, record: JobRecord) -> Plan | None:
        """The same on nodes reserved for another, where that has room as soon beside the job."""
        claims = self._claims
        kept = claims.reservations[record.job.pool]
        mask = claims.mask_beside(record, [kept.job])
        return self._reserver.plan_beside(kept, partial(self._planner.of_background, record, mask))

    def plan_growth(self, record: JobRecord) -> Plan | None:
        """A plan by which background work leaves for tasks that a running gang misses, once none is leaving already."""
        if not self._has_background or self._is_background_leaving(record.job.pool):
            return None
        tasks = first_tasks(missing_tasks(self._state, record), partial(may_join, self._state, record))
        mask = mask_for_growth(self._state, self._claims, record)
        return self._cells.keep_sound(lambda: self._planner.growth(record, tasks, mask)) if tasks else None

    def _is_background_leaving(self, pool: str) -> bool:
        running = (record for record in self._state.running.values() if record.job.is_background)
        return any(record.job.pool == pool and (record.is_ending or is_leaving(record)) for record in running)

    def plan_under_limit(self, record: JobRecord) -> Plan | None:
        """For a job that is guaranteed its room: take back what others have borrowed of a limit that is in its way."""
        if not is_guaranteed(self._state, record):
            return None
        if is_limited_by_user(self._state, record) or is_held_for_good(self._state, record):
            return None  # no departure would help
        if self._is_limit_being_vacated(record):
            return None
        mask = self._mask_for_guarantee(record)

        def stays(plan: Plan) -> bool:
            return fits_ahead(self._state, record, [task for task, _ in plan.placed])

        return self._cells.keep_sound(lambda: self._planner.by_guarantee(record, mask, stays))

    def _is_limit_being_vacated(self, record: JobRecord) -> bool:
        """Whether work under the limit that keeps the job out is leaving: it still counts, so no other is asked."""
        queues = self._state.queues
        limiting = limit_in_the_way(self._state, record)
        return limiting is not None and any(
            queues.is_below(other.queue, limiting.queue.name)
            and any(task.state is TaskState.STOPPING for task in other.tasks)
            for other in self._state.running.values()
        )

    def _beside_kept(self, record: JobRecord) -> Plan | None:
        """A plan for a job within its guarantee by which work leaves other cards of nodes of which some are kept."""
        if not self._reserved.is_used:
            return None
        mask = self._mask_for_guarantee(record)

        def accepts(plan: Plan) -> bool:
            return leaves_kept(self._state, record, plan.placed, plan.leaving)

        with self._reserved.kept_as_held(record, mask, self._mask_if_nothing_reserved(record)) as wider:
            return None if wider is None else self._planner.by_guarantee(record, wider, accepts)

    def _mask_for_guarantee(self, record: JobRecord) -> NodeMask | None:
        """(nodes,), 0 where nobody may be asked to leave for a job within its guarantee."""
        mask = self._claims.mask(record)
        if not self._reserved.is_used:
            return mask
        return self._reserved.mask_for_plans(record, mask, self._mask_if_nothing_reserved(record))

    def _mask_if_nothing_reserved(self, record: JobRecord) -> NodeMask | None:
        return both(self._claims.mask_without_reservations(record), self._state.cluster.cells.mask(record))
