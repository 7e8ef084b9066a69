"""The admission cycle: from the first job in line to the last, admit, place, make room, reserve.

It happens on a trial ledger. Where a plan ends or moves running work, its room counts as free for the rest of the cycle
and its successor as placed, so every job sees the cluster as it will be. If no plan was needed, the trial is kept. Else
it is rolled back: what needs no departure starts now, the victims are asked to leave, and the exact places of their
successors are claimed until they have left.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial

from millpond.model.reasons import Cause
from millpond.scheduling.cycle.cell_placement import CellPlacer
from millpond.scheduling.cycle.claims import Claims, KeptOff, both, charge_placed
from millpond.scheduling.cycle.fetch_waits import FetchWaits
from millpond.scheduling.cycle.job_placement import Placed, Placer
from millpond.scheduling.cycle.line_heads import Heads, TableHeads
from millpond.scheduling.cycle.making_room import RoomMaker
from millpond.scheduling.cycle.open_places import OpenPlaces
from millpond.scheduling.cycle.prospects import Departures, Prospects
from millpond.scheduling.cycle.reservations import Reserver
from millpond.scheduling.cycle.reserved_places import ReservedPlaces
from millpond.scheduling.cycle.starting import Starter
from millpond.scheduling.cycle.waiting_requests import WaitingRequests
from millpond.scheduling.elastic.gang_sizes import most_tasks
from millpond.scheduling.elastic.growth import grow, in_order
from millpond.scheduling.feasibility.request_classes import RequestClass
from millpond.scheduling.migration.consolidation import Consolidation
from millpond.scheduling.ordering.line_table import LineKey
from millpond.scheduling.packing.packing import PairPacking
from millpond.scheduling.packing.partners import packs
from millpond.scheduling.placement.arrays import NodeMask
from millpond.scheduling.reclaiming.plans import Planner
from millpond.scheduling.reclaiming.searching import Plan
from millpond.scheduling.records import Group, JobRecord, TaskRecord
from millpond.scheduling.reserving.counted_reservations import fits_ahead, is_covered_beside_reserved
from millpond.scheduling.reserving.reserved_rooms import ReservedRoom
from millpond.scheduling.state import State
from millpond.scheduling.suspension.time_slicing import TimeSlicing
from millpond.scheduling.tenancy.admission import admitted_tasks, uses_cells
from millpond.scheduling.tenancy.queue_rank import QueueRank, Rank
from millpond.scheduling.tenancy.windows import lending_ends, outlasts_lending

PLANS_PER_CYCLE = 32
"""How many preemption plans one cycle tries: a bound on work, not on time."""

LINE_DEPTH = 16
"""How far down lines one cycle looks, in all, past jobs that are kept out although others of their line are not."""

LAST: Rank = (float("inf"),)
"""A rank behind that of every job."""


class AdmissionVerdict(Enum):
    """What came of looking at one job."""

    PLACED = "placed"
    NOT_ADMITTED = "not admitted"
    """Its queue or user holds as much as they may; so the rest of its line drops out too."""
    KEPT_OUT = "kept out"
    """It has to stay behind for now, but others of its line may not."""
    BLOCKED = "blocked"
    """There is no room for it, nor for others of its line."""


@dataclass(slots=True)
class CycleOutcome:
    """What one walk came to.

    Attributes:
        first_back: the highest precedence (``QueueRank.precedence``) among those who end by the plans, to wait again.
        behind: ids of those placed in what plans of others left, though one that ends for these comes before them.
    """

    placed: list[tuple[JobRecord, Placed, Cause]]
    plans: list[Plan]
    blocked: list[JobRecord]
    held_back: list[JobRecord]
    fetch_waits: list[tuple[str, float]] = field(default_factory=list)
    first_back: Rank = LAST
    behind: set[str] = field(default_factory=set)


class AdmissionCycle:
    """Walks the waiting lines of one state.

    Attributes:
        places: where jobs may be placed beside what is kept for others.
        fetch_waits: who waits for nodes that hold what they need.
    """

    def __init__(
        self,
        state: State,
        placer: Placer,
        claims: Claims,
        planner: Planner,
        reserver: Reserver,
        time_slicing: TimeSlicing,
        starter: Starter,
        consolidation: Consolidation,
        packing: PairPacking,
    ) -> None:
        self._state = state
        self._placer = placer
        self._claims = claims
        self._planner = planner
        self._reserver = reserver
        self._time_slicing = time_slicing
        self._starter = starter
        self._packing = packing
        self._reserved = ReservedPlaces(state)
        self._cells = CellPlacer(state, placer, planner)
        self.fetch_waits = FetchWaits(state, claims, reserver)
        self.places = OpenPlaces(state, placer, claims, reserver, self._reserved, self._cells)
        self._room_maker = RoomMaker(reserver, planner, claims, self._reserved, self._cells, consolidation)
        self._bounded = False
        self._lending_ends: dict[str, float] = {}
        self._kept_out: dict[LineKey, KeptOff] = {}
        self._no_room: dict[RequestClass, list[KeptOff]] = {}
        """Where a request has found no room in this walk, and what kept it off nodes then; kept where that pays."""
        self._is_long = False
        self._asking: WaitingRequests | None = None
        self._blocked: set[str] = set()
        self._closed: set[Group | None] = set()
        """Groups with a strict ordering of their own, see ``ordering.turns``, of which one is blocked."""

    def run(self) -> None:
        """One cycle, with its decisions."""
        # 1. A plan with too many victims for one cycle goes on; claims whose victims have left become starts.
        if self._starter.ask_more():
            self._state.is_unfinished = True
            return
        self._starter.settle_claims()
        self._packing.before_walk()
        self.fetch_waits.prune()
        # 2. The lines are walked on a trial ledger, in order of rank; see ``_consider`` for steps 3 to 6.
        journal = self._state.journal
        mark = journal.begin()
        outcome = CycleOutcome([], [], [], [])
        self._claims.charge(1)
        self._reserved.begin_walk()
        self._walk(outcome)
        self._claims.end_walk()
        for record in outcome.held_back:
            self._state.ordering.held_back(record)
        self.fetch_waits.keep(outcome.fetch_waits)
        # 8. Without plans the trial is kept; else it is rolled back, and carried out as far as no departure is needed.
        if not outcome.plans:
            self._claims.charge(-1)
            self._reserved.end_walk()
            journal.commit()
            for record, placed, cause in outcome.placed:
                self._starter.start(record, placed, cause)
            self._time_slicing.share(outcome.blocked)
            self._packing.after_walk(outcome.blocked)
            return
        journal.rollback(mark)
        self._claims.forget_trial()
        self._starter.carry_out(outcome.placed, outcome.plans, outcome.behind)
        if not self._state.is_unfinished:
            self._packing.after_walk(outcome.blocked)

    def would_start(self, record: JobRecord) -> bool:
        """Whether a cycle now would start a job in line, without any departure; nothing is kept of the trial."""
        if self._state.holds_back(record) and not (self._state.reserved.by_name or uses_cells(self._state, record)):
            return False  # there is no more room when its turn comes
        outcome = CycleOutcome([], [], [], [])
        mark = self._state.journal.begin()
        with self._claims.rehearsal():
            self._claims.charge(1)
            self._reserved.begin_walk()
            self._walk(outcome, until=record)
        self._state.journal.rollback(mark)
        return not outcome.plans and any(placed is record for placed, _, _ in outcome.placed)

    # ---- the walk itself ----------------------------------------------------------------------------------------

    def _walk(self, outcome: CycleOutcome, until: JobRecord | None = None) -> None:
        """Walk the lines to their end.

        Args:
            until: it is only of interest whether this job starts without a departure: no further than that is known.
        """
        state = self._state
        self._look_around()
        standing = QueueRank(state)
        self._planner.begin(standing)
        lines = self._lines(standing, outcome)
        gangs = in_order(state, standing) if state.growing else []
        depth = LINE_DEPTH
        seen = self._displacing(outcome)
        while True:
            if (now := self._displacing(outcome)) != seen:
                seen = now
                lines.reconsider()
            if (record := lines.pop()) is None:
                break
            rank = standing.rank(record) if gangs else LAST
            while gangs and gangs[-1][0] <= rank[: len(gangs[-1][0])]:
                self._grow(gangs.pop()[1], outcome, standing)
            if self._waits_behind_first(record) and not self._reserved.open_to(record):
                continue
            if not state.ordering.strict and self._is_behind(record):
                self._claims.bind(record, standing)
            verdict = self._consider(record, outcome)
            if until is not None and (record is until or outcome.plans):
                return
            if verdict is AdmissionVerdict.BLOCKED:
                outcome.blocked.append(record)
                self._block(record, standing, lines)
                kept_off = self._claims.kept_off(record) if self._may_have_room(record) else (0, 0, 0)
                if any(kept_off) and depth:
                    self._kept_out[record.line] = kept_off
                    verdict = AdmissionVerdict.KEPT_OUT
                elif not any(kept_off[1:]) and not record.elastic:
                    lines.found_no_room(record, is_kept_off=bool(kept_off[0]))
            if verdict is AdmissionVerdict.KEPT_OUT and depth:
                depth -= 1
                lines.go_on(record)
                if not depth and (released_first := lines.look_no_further()) is not None:
                    outcome.held_back.append(released_first)
            elif verdict is AdmissionVerdict.PLACED:
                self._note_who_comes_back(record, outcome, standing)
                standing.place(record, outcome.placed[-1][1])
                lines.placed()
                lines.go_on(record)
                if outcome.plans and outcome.plans[-1].is_unfinished:
                    return  # nobody behind it comes before its victims have been asked
        self._claims.bind_all(self._blocked)
        while gangs:
            self._grow(gangs.pop()[1], outcome, standing)

    def _note_who_comes_back(self, record: JobRecord, outcome: CycleOutcome, standing: QueueRank) -> None:
        """A job was placed: note who ends for it, or else whether it comes behind somebody who ends for others."""
        plan = outcome.plans[-1] if outcome.plans else None
        if plan is not None and plan.record is record:
            suspended = {job.id for job, _ in plan.suspended}
            ending = [job for job in (*plan.victims, *plan.asked_later) if job.id not in suspended]
            outcome.first_back = min([outcome.first_back, *map(standing.precedence, ending)])
        elif outcome.first_back < LAST and outcome.first_back < standing.precedence(record):
            outcome.behind.add(record.id)

    def _waits_behind_first(self, record: JobRecord) -> bool:
        """Whether a strict ordering, the cluster's or its own, has it wait behind the first of its pool or group."""
        return (self._state.ordering.strict and self._is_behind(record)) or record.group in self._closed

    def _is_behind(self, record: JobRecord) -> bool:
        return record.job.pool in self._blocked and not record.job.is_background

    def _displacing(self, outcome: CycleOutcome) -> tuple[object, ...]:
        """Differs when others than before may be displaced."""
        displaces = self._room_maker.departures.bounds is not None
        return len(outcome.plans), *(self._planner.turns if displaces else ())

    def _block(self, record: JobRecord, standing: QueueRank, lines: Heads) -> None:
        """7. Reserve for the first blocked job of the pool; a strict ordering lets none behind it start instead."""
        state, pool, is_strict = self._state, record.job.pool, self._state.ordering.strict
        if pool not in self._blocked and not record.job.is_background:
            self._blocked.add(pool)
            self._planner.block(record)
            if not is_strict:
                self._reserve(record, standing)
                self._claims.bind(record, standing)
            if not (self._time_slicing.takes_place_in(pool) or packs(state, pool)):
                lines.pass_over(pool, wholly=is_strict and not self._reserved.is_used)
        if record.group is not None and state.orderings.of(record.group).strict:
            self._closed.add(record.group)
            lines.close(record.group)

    def _lines(self, standing: QueueRank, outcome: CycleOutcome) -> Heads:
        state = self._state
        if not self._is_long:
            return Heads(state.waiting, standing)

        def departures() -> Departures | None:
            return self._room_maker.departures if len(outcome.plans) < PLANS_PER_CYCLE else None

        if self._asking is None or not self._asking.are_current:
            self._asking = WaitingRequests(state, self._placer)
        prospects = Prospects(state, self._placer, self._claims, standing, self._asking)
        return TableHeads(state.waiting, standing, prospects, departures)

    def _grow(self, record: JobRecord, outcome: CycleOutcome, standing: QueueRank) -> None:
        """A running gang takes its turn: tasks that are missing join it where there is room and quota."""
        if self._planner.has_asked(record) or (self._state.ordering.strict and record.job.pool in self._blocked):
            return
        placed = grow(self._state, self._placer, self._claims, record)
        if placed:
            outcome.placed.append((record, placed, Cause.FITS))
        elif len(outcome.plans) < PLANS_PER_CYCLE and (plan := self._room_maker.plan_growth(record)) is not None:
            self._keep(plan, outcome)
        else:
            return
        standing.place(record, outcome.placed[-1][1])

    def _look_around(self) -> None:
        """What every job of this walk is held against."""
        state, claims = self._state, self._claims
        self._bounded = state.has_bounds
        self._room_maker.begin_walk()
        self._lending_ends = lending_ends(state)
        self._kept_out.clear()
        self._no_room.clear()
        self._is_long = not state.waiting.are_few
        self._blocked.clear()
        self._closed.clear()
        claims.begin_walk()
        self.places.begin_walk()

    def _consider(self, record: JobRecord, outcome: CycleOutcome) -> AdmissionVerdict:
        """Admit one job and place it on the trial ledger, making room for it if that is allowed and proved."""
        claims = self._claims
        if record.id in claims.by_job:
            return AdmissionVerdict.KEPT_OUT
        if self._reserved.is_used and (verdict := self._consider_reserved(record, outcome)) is not None:
            return verdict
        end = self._lending_ends.get(record.job.pool)
        if end is not None and outlasts_lending(self._state, record, end):
            return AdmissionVerdict.KEPT_OUT
        # 3. Admit: as many tasks as the limits of its queue and its user allow.
        tasks = None
        if record.elastic or self._bounded or not record.job.preemptible:
            tasks = admitted_tasks(self._state, record)
            if not tasks:
                plan = self._room_maker.plan_under_limit(record) if len(outcome.plans) < PLANS_PER_CYCLE else None
                return AdmissionVerdict.NOT_ADMITTED if plan is None else self._keep(plan, outcome)
            tasks = self._fitting_ahead(record, tasks)
            if not tasks:
                return AdmissionVerdict.KEPT_OUT
        # Where its queue is owed cells, their exact cards, and who is on these leaves.
        if uses_cells(self._state, record) and is_covered_beside_reserved(self._state, record):
            plan = self._in_cells(record, tasks, outcome)
            if plan is not None:
                return self._keep(plan, outcome)
        has_room = self._may_have_room(record)
        if not has_room and not self._room_maker.might(record):
            return AdmissionVerdict.BLOCKED  # most of those who head a line, in most walks
        placed, cause = None, Cause.BACKFILLED if record.job.pool in self._blocked else Cause.FITS
        if has_room:
            # 4. Hold back: the ordering may keep room for shorter work.
            if self._state.holds_back(record):
                outcome.held_back.append(record)
                return AdmissionVerdict.KEPT_OUT
            if self._is_kept_off_as_much(record):
                return AdmissionVerdict.KEPT_OUT
            # 5. Place, off the nodes that are claimed or reserved for others or close too soon; where guarantees name
            # models of cards, on those that one covers first.
            mark = self._state.journal.begin() if record.job.contents else None
            placed = self._place_on_guaranteed(record, tasks) or self._place(record, tasks)
            if mark is not None and self._had_better_wait(record, placed, mark, outcome):
                return AdmissionVerdict.NOT_ADMITTED
        # 6. Make room, by the least disruptive rule that allows it.
        if placed is None and len(outcome.plans) < PLANS_PER_CYCLE:
            plan = self._room_maker.plan(record)
            if plan is None and record.job.pool not in self._blocked:
                plan = self._room_maker.plan_moves(record)
            if plan is not None:
                return self._keep(plan, outcome)
        if placed is None:
            return AdmissionVerdict.BLOCKED
        charge_placed(self._state, record, placed)
        outcome.placed.append((record, placed, cause))
        return AdmissionVerdict.PLACED

    def _had_better_wait(self, record: JobRecord, placed: Placed | None, mark: int, outcome: CycleOutcome) -> bool:
        """End the trial of a place where a job may have to fetch what it needs: it is given back, if the job waits."""
        wait = None if placed is None else self.fetch_waits.find(record, placed)
        if wait is None:
            self._state.journal.commit()
            return False
        self._state.journal.rollback(mark)
        outcome.fetch_waits.append((record.id, wait.until))
        return True

    def _consider_reserved(self, record: JobRecord, outcome: CycleOutcome) -> AdmissionVerdict | None:
        """Place one job on cards that are reserved for its queue; None where it may start on others."""
        for room in self._reserved.open_to(record):
            mask = both(self._claims.mask_on_reserved(record), self._state.cluster.cells.mask(record))

            def place(mask: NodeMask | None, room: ReservedRoom = room) -> Placed | None:
                return self._reserved.place(self._placer, record, room, mask)

            placed = self._cells.place_settled(record, mask, place)
            if placed is not None:
                charge_placed(self._state, record, placed)
                outcome.placed.append((record, placed, Cause.FITS))
                return AdmissionVerdict.PLACED
        is_confined = self._state.reserved.requires(record) or self._waits_behind_first(record)
        return AdmissionVerdict.NOT_ADMITTED if is_confined else None

    def _fitting_ahead(self, record: JobRecord, tasks: list[TaskRecord]) -> list[TaskRecord]:
        """The most of the tasks that are admitted which reservations leave room for that begin while they run."""
        if not self._reserved.is_used or not tasks:
            return tasks
        return most_tasks(record.job, tasks, partial(fits_ahead, self._state, record))

    def _in_cells(self, record: JobRecord, tasks: list[TaskRecord] | None, outcome: CycleOutcome) -> Plan | None:
        """The place of a job in its cells; with departures only as long as this cycle may plan any."""
        mark = self._state.journal.begin()
        plan = self._cells.plan(record, tasks or record.queued(), self._claims.mask_for_cells(record))
        if plan is not None and plan.leaving and len(outcome.plans) >= PLANS_PER_CYCLE:
            self._state.journal.rollback(mark)
            return None
        self._state.journal.commit()
        return plan

    def _place_on_guaranteed(self, record: JobRecord, tasks: list[TaskRecord] | None) -> Placed | None:
        """As ``_place``, on cards of the models that a guarantee covers the job on; None if it covers all or none."""
        choices = self._state.entitlements.guaranteed_choices(record)
        if not choices or len(choices) == len(self._state.entitlements.choices(record, record.demand.least_amount)):
            return None
        for choice in choices:
            with self._state.entitlements.on_choice(record, choice):
                some = tasks and self._fitting_ahead(record, admitted_tasks(self._state, record))
                placed = None if some == [] else self._place(record, some)
            if placed is not None:
                return placed
        return None

    def _place(self, record: JobRecord, tasks: list[TaskRecord] | None) -> Placed | None:
        """Take holdings for a job, unless its like has found no room in this walk, and was kept off no more nodes."""
        claims = self._claims
        if before := self._no_room.get(record.demand):
            kept_off = claims.kept_off(record)
            if any(is_as_much(kept_off, then) for then in before):
                return None
        placed = self.places.take(record, tasks)
        if placed is None and self._is_long and not record.elastic and not self._state.queues.counts_cards:
            self._no_room.setdefault(record.demand, []).append(claims.kept_off(record))
        return placed

    def _keep(self, plan: Plan, outcome: CycleOutcome) -> AdmissionVerdict:
        """Go on with a plan that stands on the trial ledger: there is more room then, and less that could leave."""
        if plan.is_needed:
            outcome.plans.append(plan)
            self._no_room.clear()
            self._room_maker.note_departures()
        charge_placed(self._state, plan.record, plan.placed)
        outcome.placed.append((plan.record, plan.placed, plan.cause if plan.is_needed else Cause.FITS))
        return AdmissionVerdict.PLACED

    def _is_kept_off_as_much(self, record: JobRecord) -> bool:
        """Whether one of its like has found no room on the nodes open to it; only a shorter job may do better."""
        before = self._kept_out.get(record.line)
        return before is not None and is_as_much(self._claims.kept_off(record), before)

    def _may_have_room(self, record: JobRecord) -> bool:
        """Whether, counting free compute alone, the job might fit."""
        return record.gpu_milli <= self._state.cluster.free_gpu_milli or record.elastic

    def _reserve(self, record: JobRecord, standing: QueueRank) -> None:
        """Keep room for the first blocked job of a pool, if wanted; looked for anew whenever room has appeared.

        Where the ordering may displace running work, that is for jobs that are overdue, and for those of a queue that
        another is ahead of by a round: where its jobs ask for less at once, or for less time, they would take all that
        comes free. Displacement sees to others.
        """
        claims, state = self._claims, self._state
        if not state.settings.reserve:
            return
        if state.ordering.displaces and not (record.overdue or standing.is_behind(record.queue)):
            return
        pool = record.job.pool
        kept = claims.reservations.get(pool)
        if kept is not None and kept.job != record.id:
            kept = None
        if record.overdue or state.ordering.displaces:
            if kept is None or not claims.is_fresh(pool):
                found = self._reserver.reserve(record, () if kept is None else kept.nodes)
                if found is not None and kept is not None:
                    # What was promised is kept: from then on no other work enters.
                    found = replace(found, at=min(found.at, kept.at))
                claims.keep(pool, found)
        elif kept is None or kept.at <= state.now or not claims.is_fresh(pool):
            found = self._reserver.reserve(record)
            # Room that is there by count, and yet does not do, comes no nearer by being kept.
            claims.keep(pool, found if found is not None and found.at > state.now else None)


def is_as_much(kept_off: KeptOff, before: KeptOff) -> bool:
    """Whether a job is kept off all nodes that another was."""
    return all(now >= then for now, then in zip(kept_off, before, strict=True))
