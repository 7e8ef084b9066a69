"""The scheduler: events in, decisions out. Pure and deterministic; time is what the caller says it is.

``decide`` is the cycle. Nothing is ended before the whole placement of its successor has been proved on the ledger.
While scheduling is paused (``events.SchedulingPaused``) nothing starts or grows, so nothing is asked to leave for it.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from millpond.model.decisions import Decision, Migrate
from millpond.model.events import Event, PolicyChanged
from millpond.model.reasons import Cause, DeadlineOutlook, Reason
from millpond.model.tenancy.reservations import AdvanceReservation
from millpond.model.tenancy.tenants import Limit, Queue
from millpond.model.workloads import Job, Priority
from millpond.scheduling import runs
from millpond.scheduling.copies import forking, snapshots
from millpond.scheduling.cycle.admission_cycle import AdmissionCycle
from millpond.scheduling.cycle.claims import Claims
from millpond.scheduling.cycle.job_placement import Placer
from millpond.scheduling.cycle.overdue import Overdue
from millpond.scheduling.cycle.redo import Redo
from millpond.scheduling.cycle.replanning import Replanner
from millpond.scheduling.cycle.reservations import Reserver
from millpond.scheduling.cycle.starting import Starter
from millpond.scheduling.cycle.wakeups import Wakeups
from millpond.scheduling.elastic.growth import grow_all, resume_suspended
from millpond.scheduling.estimating.lengths import ExpectedLengths, expected_lengths
from millpond.scheduling.estimating.line_order import LineOrder
from millpond.scheduling.event_handling.event_handlers import EventHandlers
from millpond.scheduling.event_handling.requeueing import with_priority
from millpond.scheduling.explaining.explainer import Explainer
from millpond.scheduling.migration.consolidation import Consolidation
from millpond.scheduling.migration.hot_spots import HotSpots
from millpond.scheduling.migration.migrations import Migrations
from millpond.scheduling.nodes.drain import follow_cordons
from millpond.scheduling.nodes.power_overview import PowerOverview, candidates
from millpond.scheduling.nodes.views import NodeView, QueueView, node_views, queue_view
from millpond.scheduling.nodes.waking import nodes_to_wake
from millpond.scheduling.packing.packing import PairPacking, note_pairs
from millpond.scheduling.placement.kernels import KernelSet
from millpond.scheduling.reclaiming.plans import Planner
from millpond.scheduling.reclaiming.restore_room import bring_back
from millpond.scheduling.reserving.agreement import Misfit, misfit
from millpond.scheduling.reserving.upkeep import follow_reservations, require_usable
from millpond.scheduling.reserving.views import ReservationView, reservation_views
from millpond.scheduling.settings import Settings
from millpond.scheduling.state import State
from millpond.scheduling.suspension.suspension import (
    end_overlong,
    why_not_vacated,
    why_suspend_refused,
)
from millpond.scheduling.suspension.time_slicing import TimeSlicing
from millpond.scheduling.tenancy.cells.cell_map import CellChain, cell_map
from millpond.scheduling.tenancy.queue_views import QueueDetail, QueueStatus, queue_detail, queue_statuses
from millpond.scheduling.tenancy.windows import follow_hours, leave


class Scheduler:
    """The core. One thread owns it; other threads read snapshots.

    Attributes:
        jobs: every job it knows, by id; to be read, not written. Ended jobs stay until ``forget``.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        self._assemble(settings or Settings())

    def _assemble(self, settings: Settings) -> None:
        """Make all parts, empty."""
        self.settings = settings
        self._state = State(self.settings)
        self._placer = Placer(self._state.cluster, self.settings, self._state.queues)
        self._placer.allowed_nodes = self._state.entitlements.allowed_nodes
        self._claims = Claims(self._state)
        self._migrations = Migrations(self._state, self._placer, self._claims)
        self._event_handlers = EventHandlers(self._state, self._placer, self._claims, self._migrations)
        self._planner = Planner(self._state, self._placer)
        self._reserver = Reserver(self._state, self._placer)
        self._overdue = Overdue(self._state, self._reserver)
        self._time_slicing = TimeSlicing(self._state, self._placer, self._claims)
        starter = Starter(self._state, self._placer, self._claims, self._planner)
        self._hot_spots = HotSpots(self._state, self._claims, self._migrations)
        self._consolidation = Consolidation(self._state, self._placer, self._claims, self._migrations, self._reserver)
        self._packing = PairPacking(self._state, self._placer, self._claims, self._migrations, starter)
        self._walk = AdmissionCycle(
            self._state,
            self._placer,
            self._claims,
            self._planner,
            self._reserver,
            self._time_slicing,
            starter,
            self._consolidation,
            self._packing,
        )
        self._redo = Redo(self._state, self._claims, self._migrations, starter, self._packing)
        self._replanner = Replanner(self._state, self._placer)
        self._explainer = Explainer(self._state, self._placer, self._claims, self._time_slicing, self._walk, starter)
        self.jobs = self._state.jobs
        self._claims_seen = (0, 0)
        self._wakeups = Wakeups(
            self._state,
            self._claims,
            self._time_slicing,
            self._replanner,
            (self._consolidation, self._hot_spots),
            self._packing,
        )

    # ---- the cycle ----------------------------------------------------------------------------------------------

    def handle(self, event: Event) -> None:
        """Take note of what happened.

        Raises:
            InvalidInputError, NotFoundError, ConflictError: the event contradicts the state; nothing has changed.
        """
        if type(event) is PolicyChanged:
            self._change_policy(event)
        else:
            self._event_handlers.handle(event)
        self._explainer.estimates.note_event(event)

    def _change_policy(self, event: PolicyChanged) -> None:
        """Go on under other policies: the parts are made anew and take the jobs over, who waits is keyed anew."""
        settings = replace(
            self.settings,
            ordering=event.ordering,
            placement=event.placement,
            preempt=event.preempt,
            reserve=event.reserve,
        )
        self._state.now = max(self._state.now, event.at)
        before, kernels = self._parts, self._placer.kernels
        self._assemble(settings)
        self.use_kernels(kernels)
        forking.go_on_under_other_policies(before, self._parts)

    @property
    def _parts(self) -> forking.Parts:
        return forking.Parts(self._state, self._placer, self._claims)

    def decide(self, now: float) -> list[Decision]:
        """Everything that should happen next, as of ``now`` (seconds; never earlier than the last event)."""
        state = self._state
        with state.journal:
            state.now = max(state.now, now)
            state.begin_cycle()
            note_pairs(state)
            # 1. What is due: reservations, cordons, windows and lending hours, stale claims, time limits, pauses, and
            # pairs on the same cards that do not pay.
            follow_reservations(state)
            follow_cordons(state)
            follow_hours(state, leave)
            self._claims.prune()
            self._end_at_limits()
            state.end_pauses()
            self._packing.unpack()
            # 2. Suspended work goes on where its devices are free, or are left by work that ranks below it.
            state.is_unfinished = False
            if state.suspended:
                self._resume()
            # 3. Waiting work starts and running gangs grow, in order of the lines or by replanning.
            if not state.holds and not state.is_unfinished:
                self._start_work()
                self._consolidate()
                if not state.is_unfinished:
                    self._packing.spread()
            # 4. Jobs that share devices in turns rotate; what has been suspended for too long ends.
            if state.suspended and not state.is_unfinished:
                self._time_slicing.rotate(Priority.BACKGROUND, free_only=False)
                end_overlong(state)
            state.end_cycle()
        self._explainer.estimates.note_cycle()
        decisions, state.outbox = state.outbox, []
        return decisions

    def _end_at_limits(self) -> None:
        """End the runs that have reached their time limit."""
        state = self._state
        while state.deadlines and state.deadlines[0][0] <= state.now:
            _, job, attempt = heapq.heappop(state.deadlines)
            record = state.running.get(job)
            if record is None or record.attempt != attempt or record.stop_trigger is not None:
                continue
            if record.service_s(state.now) + 1e-6 >= (record.job.time_limit_s or 0.0):
                runs.stop_at_limit(state, record)
            else:  # it was suspended for a while
                state.watch_deadline(record)

    def _resume(self) -> None:
        """Step 2. Work of a higher class that waits goes first, in step 3."""
        state = self._state
        # While nothing new may start, waiting work is not in the way of suspended work.
        ahead = Priority.BACKGROUND if state.holds else state.waiting.highest_class()
        if self._grows_over_background and not state.holds:
            ahead = max(ahead, Priority.LOW)
        lent = bool(state.holds) or not state.waiting.count
        left = resume_suspended(state, self._claims, self._migrations, ahead, lent=lent)
        if state.is_unfinished:
            return  # those who come first have not all gone on
        self._time_slicing.rotate(ahead, free_only=True)
        if not state.holds:
            bring_back(state, self._claims, left)

    def _start_work(self) -> None:
        """Step 3."""
        state = self._state
        replans = state.replans
        if state.growing or state.waiting.count:
            self._placer.refresh()
        walks = bool(state.waiting.count) or (self._grows_over_background and not replans)
        if replans or not walks:
            grow_all(state, self._placer, self._claims)
        if walks:
            state.ordering.time_left.refresh(state.roster, state.now)
            state.rekey_due()
            if replans:
                self._replanner.replan()
            else:
                if self.settings.reserve:
                    self._overdue.promote()
                self._walk.run()
            if state.suspended and not state.is_unfinished:
                resume_suspended(state, self._claims, self._migrations, Priority.BACKGROUND)

    def _consolidate(self) -> None:
        """Step 3, where pools want it: running work is gathered on fewer nodes, and moved off busy cards."""
        if self._consolidation.is_wanted:
            self._consolidation.go_on()
            if not self._state.is_unfinished:
                self._consolidation.empty_nodes()
        if self._hot_spots.is_wanted and not self._state.is_unfinished:
            self._hot_spots.relieve()

    @property
    def _grows_over_background(self) -> bool:
        """Whether a gang misses tasks for which background work leaves, or has left: that takes a walk."""
        state = self._state
        if not any(not gang.job.is_background for gang in state.growing.values()):
            return False
        is_there = state.roster.least_priority() == Priority.BACKGROUND
        return is_there or any(record.job.is_background for record in state.suspended.values())

    @property
    def is_unfinished(self) -> bool:
        """Whether the latest cycle came to its bound on work: the next one goes on with it, at once."""
        return self._state.is_unfinished

    def next_wakeup(self, now: float) -> float | None:
        """The instant at which a cycle is worth running although no event arrives; None when there is none."""
        return self._wakeups.next(now)

    # ---- what was decided before, from a log ----------------------------------------------------------------------

    def expect(self, decided: Sequence[Decision]) -> None:
        """Before events are handled anew: the cycle behind them came to these decisions."""
        self._migrations.decided = {each.job: each.placement for each in decided if isinstance(each, Migrate)}

    def redo(self, now: float, decided: Sequence[Decision], claims: Sequence[Any] | None = None) -> None:
        """Carry out what a cycle decided, instead of ``decide``.

        Args:
            claims: ``changed_claims`` of then.

        Raises:
            InconsistentStateError: a decision is about what is not there.
        """
        if claims is not None:
            snapshots.give_nodes(claims, self._state)
        self._redo.cycle(now, decided)
        self._explainer.estimates.note_cycle()
        if claims is not None:
            snapshots.give_claims(claims, self._state, self._claims)
            self._consolidation.redo(decided)
        self._hot_spots.redo(decided)
        self._claims_seen = self._kept_version
        self._migrations.decided = {}

    def changed_claims(self) -> list[Any] | None:
        """The places that are kept for jobs until others have left, and the nodes that are kept for reservations, as
        plain data; None: as when this was last asked.

        What comes from a snapshot or a log has not changed.
        """
        if self._claims_seen == self._kept_version:
            return None
        self._claims_seen = self._kept_version
        return snapshots.take_kept(self._state, self._claims)

    @property
    def _kept_version(self) -> tuple[int, int]:
        """Differs when another place or node is kept for anyone."""
        return self._claims.version, self._state.reserved.version

    # ---- questions ----------------------------------------------------------------------------------------------

    def check(self, job: Job) -> Reason | None:
        """Why the cluster could never take the job, were it empty and all healthy; None if it could."""
        return self._explainer.impossible(job)

    def check_reservation(self, job: Job) -> None:
        """Refuse a job that requires a reservation which it could not use.

        Once it is submitted it is never refused for that: as soon as its reservation is over, it may start anywhere.

        Raises:
            NotFoundError: there is none of that name, or none any more.
            InvalidInputError: it is another queue's, or in another pool, or too small.
        """
        require_usable(self._state, job)

    def with_priority(self, job: Job, priority: Priority) -> Job:
        """A job that is not known here yet, with another class of priority.

        Raises:
            ConflictError: it would become background work, or is.
            InvalidInputError: its queue, or one above, does not allow the class.
        """
        return with_priority(self._state.queues, job, priority)

    def explain(self, job_id: str, now: float, *, within_s: float = 0.0) -> Reason:
        """Why a job waits (or why it does not), with numbers, remedy, position and estimated start.

        Args:
            within_s: the last two may be of so many seconds ago, where very many wait.

        Raises:
            NotFoundError: there is no such job.
        """
        self._state.now = max(self._state.now, now)
        return self._explainer.explain(job_id, within_s)

    def deadline_outlook(self, job_id: str, now: float, *, within_s: float = 0.0) -> DeadlineOutlook | None:
        """Whether a job should end by its deadline; None for one that has none, or has ended.

        Args:
            within_s: the estimate may be of so many seconds ago, where very many wait.

        Raises:
            NotFoundError: there is no such job.
        """
        self._state.now = max(self._state.now, now)
        return self._explainer.deadline_outlook(job_id, within_s)

    def expected_lengths(self, now: float) -> ExpectedLengths:
        """How long each job runs on, or runs once it has started, as estimates expect."""
        self._state.now = max(self._state.now, now)
        return expected_lengths(self._state)

    def cause(self, job_id: str, now: float) -> Reason:
        """Why a job waits (or why it does not), with numbers alone: quick, for lists.

        Raises:
            NotFoundError: there is no such job.
        """
        self._state.now = max(self._state.now, now)
        return self._explainer.cause(job_id)

    def first_in_line(self, most: int, now: float) -> list[str]:
        """The jobs that are next of all that wait in a line, the first first, at most so many."""
        self._state.now = max(self._state.now, now)
        return [record.id for _, _, record in LineOrder(self._state).ranked[:most]]

    def why_not_swapped(self, job_id: str) -> str:
        """Why a running job could not be swapped off its cards now; empty if it could, or does not run.

        Whether its engine can do it is seen only when it is asked to.
        """
        record = self._state.jobs.get(job_id)
        return "" if record is None else why_not_vacated(self._state, record) or why_suspend_refused(record)

    @property
    def holds(self) -> dict[Cause, str]:
        """Why nothing new starts anywhere, in words, by kind of trouble; empty while all is well."""
        return dict(self._state.holds)

    def has_queue(self, queue: str) -> bool:
        """Whether there is a queue of this name."""
        return queue in self._state.queues.by_name

    def takes_jobs(self, queue: str) -> bool:
        """Whether the queue is there, and has none below it."""
        return self._state.queues.is_leaf(queue)

    def card_models(self) -> set[str]:
        """The models of the cards that machines have."""
        nodes = self._state.cluster.nodes
        return {device.model for node in nodes if node is not None for device in node.devices}

    def limit_of(self, user: str, queue: str) -> Limit:
        """The limit in force of a user or of a queue: the other is empty."""
        return self._state.limits.by_account.get((user, queue), Limit(user, queue))

    def node_views(self) -> list[NodeView]:
        """Every node with what is free and who holds what, for display."""
        return node_views(self._state)

    @property
    def counts_load(self) -> bool:
        """Whether measured load of cards decides anything."""
        return self._placer.counts_any_load or any(pool.balances for pool in self._state.cluster.pools.values())

    def held_cards(self) -> dict[str, dict[str, int]]:
        """What is held of the compute of each card, in milli, by node and UUID."""
        return self._state.cluster.loads.held()

    def power_overview(self) -> PowerOverview:
        """Which nodes are empty, and which of those that are off waiting jobs need."""
        return PowerOverview(candidates(self._state), nodes_to_wake(self._state, self._placer, self._claims))

    def reservations(self) -> list[ReservationView]:
        """The advance reservations that are not over, for display."""
        return reservation_views(self._state)

    def misfit(self, wanted: AdvanceReservation, now: float) -> Misfit | None:
        """Why a reservation could not be agreed upon now, and from when on it could; None if it can.

        Raises:
            NotFoundError, InvalidInputError, ConflictError: it could at no time.
        """
        self._state.now = max(self._state.now, now)
        return misfit(self._state, wanted)

    def queue_view(self, name: str, models: Sequence[str] = ()) -> QueueView:
        """A queue's cards, for display."""
        return queue_view(self._state, name, models)

    def queues(self) -> list[Queue]:
        """All queues, each behind its parent."""
        return self._state.queues.queues()

    def queue_statuses(self, changed: Sequence[Queue] = ()) -> list[QueueStatus]:
        """Every queue with what it holds, each behind its parent, for display.

        Args:
            changed: queues as they might be defined instead; what a tree of these would say of what runs now.

        Raises:
            InvalidInputError: no queue can be defined so.
            ConflictError: a reservation that fits now would be beyond its limits or guarantees.
        """
        return queue_statuses(self._state, changed)

    def queue_detail(self, name: str) -> QueueDetail:
        """Who uses a queue, who borrows from it, and its largest waiting job, for display."""
        return queue_detail(self._state, name)

    def cell_map(self) -> list[CellChain]:
        """Which cards are bound to whose cells, for display; empty while no queue is owed any."""
        return cell_map(self._state.cluster.cells, self._state.queues.by_name)

    # ---- upkeep -------------------------------------------------------------------------------------------------

    def forget(self, job_id: str) -> None:
        """Drop a job that has ended; others are kept."""
        record = self.jobs.get(job_id)
        if record is not None and record.state.ended:
            del self.jobs[job_id]

    def use_kernels(self, kernels: KernelSet) -> None:
        """Run on other kernels (compiled or interpreted) from now on; decisions are the same."""
        parts = (
            self._placer,
            self._planner,
            self._reserver,
            self._replanner,
            self._consolidation,
            self._state.ordering,
        )
        for part in parts:
            part.use_kernels(kernels)

    def snapshot(self) -> dict[str, Any]:
        """Everything that decisions depend on, as JSON-able data."""
        plain = snapshots.take(self._state, self._placer, self._claims)
        plain["next_change"] = self._wakeups.kept
        return plain

    @classmethod
    def restore(cls, plain: dict[str, Any]) -> Scheduler:
        """A scheduler that goes on exactly where the one that gave ``snapshot`` was."""
        scheduler = cls(snapshots.settings_of(plain))
        snapshots.give(plain, scheduler._state, scheduler._placer, scheduler._claims)
        scheduler._claims_seen = scheduler._kept_version
        scheduler._wakeups.keep(plain.get("next_change", ()))
        return scheduler

    def fork(self) -> Scheduler:
        """An independent twin: what is tried on it changes nothing here."""
        twin = Scheduler(self.settings)
        twin.use_kernels(self._placer.kernels)
        forking.fork(self._parts, twin._parts)
        twin._claims_seen = twin._kept_version
        twin._wakeups.keep(self._wakeups.kept)
        return twin
