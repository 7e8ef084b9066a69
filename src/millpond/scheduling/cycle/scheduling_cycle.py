"""The scheduling cycle: everything that is due at one instant, in numbered steps.

Nothing is ended before the whole placement of its successor has been proved on the ledger. While scheduling is paused
(``events.SchedulingPaused``) nothing starts or grows, so nothing is asked to leave for it.
"""

from __future__ import annotations

import heapq

from millpond.model.workloads import Priority
from millpond.scheduling import runs
from millpond.scheduling.cycle.admission_cycle import AdmissionCycle
from millpond.scheduling.cycle.claims import Claims
from millpond.scheduling.cycle.job_placement import Placer
from millpond.scheduling.cycle.overdue import Overdue
from millpond.scheduling.cycle.replanning import Replanner
from millpond.scheduling.cycle.reservations import Reserver
from millpond.scheduling.cycle.starting import Starter
from millpond.scheduling.elastic.growth import grow_all, resume_suspended
from millpond.scheduling.migration.consolidation import Consolidation
from millpond.scheduling.migration.hot_spots import HotSpots
from millpond.scheduling.migration.migrations import Migrations
from millpond.scheduling.nodes.drain import follow_cordons
from millpond.scheduling.ordering.queueing import end_pauses, rekey_due, watch_fresh
from millpond.scheduling.packing.packing import PairPacking, note_pairs
from millpond.scheduling.placement.kernels import KernelSet
from millpond.scheduling.prefetching.kept_places import prefetch_to_kept_places
from millpond.scheduling.reclaiming.plans import Planner
from millpond.scheduling.reclaiming.restore_room import bring_back
from millpond.scheduling.reserving.upkeep import follow_reservations
from millpond.scheduling.shifting.choosing_starts import choose_starts
from millpond.scheduling.state import State
from millpond.scheduling.suspension.suspension import end_overlong
from millpond.scheduling.suspension.time_slicing import TimeSlicing
from millpond.scheduling.tenancy.windows import follow_hours, leave


class SchedulingCycle:
    """The cycle of one scheduler, with the parts that only it drives."""

    def __init__(self, state: State, placer: Placer, claims: Claims, migrations: Migrations) -> None:
        self._state = state
        self._placer = placer
        self._claims = claims
        self._migrations = migrations
        self.planner = Planner(state, placer)
        self.reserver = Reserver(state, placer)
        self.overdue = Overdue(state, self.reserver)
        self.time_slicing = TimeSlicing(state, placer, claims, migrations)
        self.starter = Starter(state, placer, claims, self.planner)
        self.hot_spots = HotSpots(state, claims, migrations)
        self.consolidation = Consolidation(state, placer, claims, migrations, self.reserver)
        self.packing = PairPacking(state, placer, claims, migrations, self.starter)
        self.replanner = Replanner(state, placer)
        self.admission = AdmissionCycle(
            state,
            placer,
            claims,
            self.planner,
            self.reserver,
            self.time_slicing,
            self.starter,
            self.consolidation,
            self.packing,
        )

    def run(self, now: float) -> None:
        """Take all decisions as of ``now`` (seconds); they wait in ``State.outbox``."""
        state = self._state
        with state.journal:
            state.now = max(state.now, now)
            state.begin_cycle()
            note_pairs(state)
            # 1. What is due: reservations, cordons, windows and lending hours, stale claims, time limits, pauses, held
            # jobs whose start is to be chosen, and pairs on the same cards that do not pay.
            follow_reservations(state)
            follow_cordons(state)
            follow_hours(state, leave)
            self._claims.prune()
            self._end_at_limits()
            end_pauses(state)
            if state.held.undecided:
                choose_starts(state)
            self.packing.unpack()
            # 2. Suspended work goes on where its devices are free, or are left by work that ranks below it.
            state.is_unfinished = False
            if state.suspended:
                self._resume()
            # 3. Waiting work starts and running gangs grow, in order of the lines or by replanning.
            if not state.holds and not state.is_unfinished:
                self._start_work()
                self._consolidate()
                if not state.is_unfinished:
                    self.packing.spread()
            if not state.is_unfinished and (state.cluster.contents.of_nodes or state.prefetches.under_way):
                prefetch_to_kept_places(state, self._claims)
            # 4. Jobs that share devices in turns rotate; what has been suspended for too long ends.
            if state.suspended and not state.is_unfinished:
                self.time_slicing.rotate(Priority.BACKGROUND, free_only=False)
                end_overlong(state)
            watch_fresh(state)
            state.end_cycle()

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
        """Step 2: let suspended work go on. What is below the highest class that waits goes on after step 3."""
        state = self._state
        # While nothing new may start, waiting work is not in the way of suspended work.
        ahead = Priority.BACKGROUND if state.holds else state.waiting.highest_class()
        if self._grows_over_background and not state.holds:
            ahead = max(ahead, Priority.LOW)
        lent = bool(state.holds) or not state.waiting.count
        left = resume_suspended(state, self._claims, self._migrations, ahead, lent=lent)
        if state.is_unfinished:
            return  # those who come first have not all gone on
        self.time_slicing.rotate(ahead, free_only=True)
        if not state.holds:
            bring_back(state, self._claims, left)

    def _start_work(self) -> None:
        """Step 3: let waiting work start and running gangs grow, in order of the lines or by replanning."""
        state = self._state
        replans = state.replans
        if state.growing or state.waiting.count:
            self._placer.refresh()
        walks = bool(state.waiting.count) or (self._grows_over_background and not replans)
        if replans or not walks:
            grow_all(state, self._placer, self._claims)
        if walks:
            state.ordering.time_left.refresh(state.roster, state.now)
            rekey_due(state)
            if replans:
                self.replanner.replan()
            else:
                if state.settings.reserve:
                    self.overdue.promote()
                self.admission.run()
            if state.suspended and not state.is_unfinished:
                resume_suspended(state, self._claims, self._migrations, Priority.BACKGROUND)

    def _consolidate(self) -> None:
        """Step 3, where pools want it: gather running work on fewer nodes, and move it off busy cards."""
        if self.consolidation.is_wanted:
            self.consolidation.go_on()
            if not self._state.is_unfinished:
                self.consolidation.empty_nodes()
        if self.hot_spots.is_wanted and not self._state.is_unfinished:
            self.hot_spots.relieve()

    @property
    def _grows_over_background(self) -> bool:
        """Whether a gang misses tasks for which background work could leave, or was suspended: that takes a walk."""
        state = self._state
        if all(gang.job.is_background for gang in state.growing.values()):
            return False
        is_running = state.roster.least_priority() == Priority.BACKGROUND
        return is_running or any(record.job.is_background for record in state.suspended.values())

    def use_kernels(self, kernels: KernelSet) -> None:
        """Run on other kernels (compiled or interpreted) from now on; decisions are the same."""
        for part in (self.planner, self.reserver, self.replanner, self.consolidation):
            part.use_kernels(kernels)
