"""Everything a scheduler knows, in one place: waiting lines, quotas, fair shares, and open decisions.

All parts of the scheduler work on one ``State``. Jobs line up through ``scheduling.ordering.queueing``. Runs begin and
end through ``scheduling.runs``, and are suspended and resized through ``scheduling.suspension.suspension`` and
``scheduling.elastic.resizing``. So ledger, queue usage, fair shares and waiting lines agree.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from millpond.model.decisions import Decision
from millpond.model.reasons import Cause
from millpond.model.resources import Amount
from millpond.model.states import TaskState
from millpond.model.tenancy.tenants import ROOT_QUEUE
from millpond.model.workloads import Priority
from millpond.scheduling.capping.capped_runs import PowerCaps
from millpond.scheduling.elastic.measured_speed import KnownSpeeds
from millpond.scheduling.event_handling.pending import PendingDecisions, moves_memory
from millpond.scheduling.event_handling.verdicts import EventVerdicts
from millpond.scheduling.feasibility.request_classes import RequestClasses
from millpond.scheduling.ledger.cluster import Cluster
from millpond.scheduling.ledger.holdings import Holding
from millpond.scheduling.ledger.journal import Journal
from millpond.scheduling.migration.recent_moves import RecentMoves
from millpond.scheduling.nodes.card_cordons import CardCordons
from millpond.scheduling.nodes.cordon import Cordons
from millpond.scheduling.nodes.placed_jobs import PlacedJobs
from millpond.scheduling.ordering.arrivals import ArrivalHistory
from millpond.scheduling.ordering.base import Ordering
from millpond.scheduling.ordering.idle_time import IdleTime
from millpond.scheduling.ordering.line_table import GROUPED, KEY, PRIORITY, REQUEST
from millpond.scheduling.ordering.own_orderings import Orderings
from millpond.scheduling.ordering.waiting_lines import WaitingLines
from millpond.scheduling.packing.pair_speeds import PairSpeeds
from millpond.scheduling.placement.arrays import BoolArray
from millpond.scheduling.prefetching.prefetches import Prefetches
from millpond.scheduling.reclaiming.preemption_budget import PreemptionBudget
from millpond.scheduling.reclaiming.roster import Roster
from millpond.scheduling.records import JobRecord
from millpond.scheduling.reserving.reserved_rooms import ReservedRoom, ReservedRooms
from millpond.scheduling.settings import Settings
from millpond.scheduling.shifting.held_jobs import HeldJobs
from millpond.scheduling.tenancy.counted_amounts import CountedAmounts
from millpond.scheduling.tenancy.entitlements import Entitlements
from millpond.scheduling.tenancy.fairness import DecayedUsage
from millpond.scheduling.tenancy.limits import AccountLimitUsage
from millpond.scheduling.tenancy.queues import QueueTree

ACTIVE = frozenset({TaskState.STARTING, TaskState.RUNNING, TaskState.FROZEN, TaskState.SWAPPED, TaskState.STOPPING})
"""States in which a task holds something."""


class State:
    """The scheduler's whole memory.

    Attributes:
        now: the instant of the latest event or cycle.
        decided_at: that of the latest cycle.
        placed: the jobs of each node; whatever gives a task a place notes it there (``runs.take_place``).
        running: jobs that hold something, by id, in order of their start.
        entitlements: what jobs may hold more.
        amounts: what tasks and reservations count for.
        arrivals: what was submitted of late, for estimates.
        roster: the running work that victim rules look at.
        suspended: jobs that may go on when there is room, by id.
        kept: jobs that have failed and whose place is kept, by id.
        elastic: those of the running jobs that can run with fewer or more tasks, by id; filled in place, as
            ``entitlements`` looks at it too.
        growing: running jobs some of whose tasks wait to join them, by id.
        outbox: decisions taken between cycles, returned by the next one.
        pending: decisions that wait for the engine's answer; ``expect_answer`` adds to them.
        deadlines: heap of (instant, job, attempt): time limits of running jobs.
        paused: heap of (instant, sequence, job): when jobs whose start was refused, or that wait before another try,
            line up again.
        held: jobs that are held back for cheaper or cleaner hours.
        reserved: what is kept for advance reservations.
        known_speeds: how fast gangs were at which size.
        moves: which jobs were moved of late so that nodes come free.
        caps: the power caps of cards, see ``capping``.
        pair_speeds: how fast jobs are alone and beside which others.
        guests: running jobs on the cards of others, by id, see ``packing``.
        fresh: jobs that joined a waiting line since the last cycle.
        fetch_waits: until when jobs wait at the most for nodes that hold what they need, by id (``cycle.fetch_waits``).
        begun_fetch_waits: those of them that began in the latest cycle, for its log.
        fetch_waits_version: rises with each cycle in which one began.
        prefetches: what is fetched to nodes for waiting jobs.
        holds: why nothing new starts anywhere, in words, by kind of trouble; empty while all is well.
        window_changes: heap of (instant, sequence, job): when the windows of jobs open or close, see
            ``scheduling.tenancy.windows``.
        is_unfinished: the latest cycle came to its bound on work, and has to go on.
        rekeys: heap of (instant, sequence, id of the job): when a waiting job's key is computed anew.
        looks: the same: when it is looked at whether it is overdue (``cycle.overdue``).
        verdicts: what became of the events since the last cycle.
        rejudged: running jobs, by id, whose right to cells may be another since the cycle before the latest.
        rejudged_version: rises with each of them.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.now = 0.0
        self.decided_at = -1.0
        self.journal = Journal()
        self.cluster = Cluster(self.journal)
        self.cordons = Cordons(self.cluster)
        self.card_cordons = CardCordons(self.cluster)
        self.reserved = ReservedRooms(self.cordons)
        self.queues = QueueTree(self.journal)
        self.limits = AccountLimitUsage(self.journal, self.queues)
        self.amounts = CountedAmounts(self.cluster, self.queues)
        self.elastic: dict[str, JobRecord] = {}
        self.roster = Roster()
        self.entitlements = Entitlements(self.amounts, self.limits, self.elastic, self.roster, self.reserved)
        self.usage = DecayedUsage(settings.usage_half_life_s)
        self.preemption_budget = PreemptionBudget()
        self.idle_time = IdleTime()
        self.known_speeds = KnownSpeeds()
        self.moves = RecentMoves()
        self.pair_speeds = PairSpeeds()
        self.caps = PowerCaps()
        self.orderings = Orderings(settings)
        self.ordering: Ordering = self.orderings.base
        self.jobs: dict[str, JobRecord] = {}
        self.placed = PlacedJobs(self.jobs)
        self.demands = RequestClasses()
        self.waiting = WaitingLines()
        self.arrivals = ArrivalHistory()
        self.running: dict[str, JobRecord] = {}
        self.suspended: dict[str, JobRecord] = {}
        self.kept: dict[str, JobRecord] = {}
        self.guests: dict[str, JobRecord] = {}
        self.growing: dict[str, JobRecord] = {}
        self.held = HeldJobs()
        self.outbox: list[Decision] = []
        self.pending = PendingDecisions()
        self.deadlines: list[tuple[float, str, int]] = []
        self.paused: list[tuple[float, int, JobRecord]] = []
        self.fresh: list[JobRecord] = []
        self.fetch_waits: dict[str, float] = {}
        self.begun_fetch_waits: dict[str, float] = {}
        self.fetch_waits_version = 0
        self.prefetches = Prefetches()
        self.holds: dict[Cause, str] = {}
        self.window_changes: list[tuple[float, int, JobRecord]] = []
        self.is_unfinished = False
        self.rekeys: list[tuple[float, int, str]] = []
        self.looks: list[tuple[float, int, str]] = []
        self.verdicts = EventVerdicts()
        self.rejudged: set[str] = set()
        self.rejudged_version = 0
        self.next_decision = 1
        self.next_sequence = 0
        self.protects = False
        """Whether any job or queue was ever promised a minimum run time."""

    def holds_back(self, record: JobRecord) -> bool:
        """Whether the ordering leaves free room to others although the job might fit; not if a guarantee covers it."""
        return (
            self._may_hold_back
            and not (record.elastic or record.overdue or record.job.is_background or record.group)
            and self.ordering.holds_back(record, *self._free_and_capacity_milli, self.now)
            and (not self.queues.has_guarantees or self.entitlements.borrows(record, record.demand.least_amount))
        )

    def held_lines(self) -> tuple[BoolArray, JobRecord | None]:
        """(lines,) the same of the first of each waiting line, covered or not; and who of them waits for that no longer
        first."""
        table = self.waiting.table
        if not self._may_hold_back:
            return np.zeros(len(table), dtype=np.bool_), None
        rigid = np.array([demand is not None and not demand.elastic for demand in table.requests.items], dtype=np.bool_)
        held, soonest = self.ordering.held_lines(table, *self._free_and_capacity_milli, self.now)
        held &= rigid[table.number(REQUEST)] & (table.figure(KEY) >= 0.0)
        held &= (table.figure(PRIORITY) > Priority.BACKGROUND) & (table.figure(GROUPED) == 0.0)
        return held, None if soonest < 0 else table.firsts[soonest]

    @property
    def _free_and_capacity_milli(self) -> tuple[int, int]:
        """Compute that is free, and all that there is, of open nodes and of those that are woken when needed."""
        asleep_milli = self.cordons.asleep_milli(self.now)
        return self.cluster.free_gpu_milli + asleep_milli, self.cluster.capacity.open_gpu_milli + asleep_milli

    @property
    def _may_hold_back(self) -> bool:
        return self.settings.reserve and not self.settings.preempt

    # ---- quotas and fair shares ---------------------------------------------------------------------------------

    @property
    def replans(self) -> bool:
        """Whether the ordering plans all running and waiting work anew at each cycle."""
        return self.ordering.replans and self.settings.preempt

    @property
    def has_bounds(self) -> bool:
        """Whether anything bounds what queues or users hold."""
        return self.queues.has_bounds or self.limits.in_force or bool(self.entitlements.unlent)

    def unused_of(self, room: ReservedRoom) -> Amount:
        """What nobody has taken of the cards of a reservation."""
        return self.amounts.of_reserved(room, self.reserved.unused(room, self.running, self.cluster))

    def charge_unused(self, room: ReservedRoom, sign: int) -> None:
        """Count that (``sign`` -1: no longer) for the queue of the reservation."""
        jobs = self.reserved.awaited_jobs(room, self.running)
        self.charge_reserved(room.wanted.queue, self.unused_of(room), jobs, sign)

    def charge_reserved(self, queue: str, amount: Amount, jobs: int, sign: int) -> None:
        """Count what is kept for a queue (``sign`` -1: no longer) for it and its group, as if so many jobs held it."""
        self.queues.charge(queue, amount, sign)
        self.limits.charge_reserved(queue, amount, jobs, sign)

    def charge(self, record: JobRecord, amount: Amount, sign: int) -> None:
        """Count what a job holds more (or, with ``sign`` -1, less) for its queues and its user."""
        self.queues.charge(record.queue, amount, sign)
        if self.limits.in_force:
            self.limits.charge(record, amount, sign)

    def minimum_run_s(self, record: JobRecord) -> float:
        """How long a run lasts at least before it is asked to leave for others: by its job and by its queue."""
        return max(record.job.minimum_run_s, self.queues.by_name[record.queue].minimum_run_s)

    def count(self, record: JobRecord, amount: Amount, sign: int) -> None:
        """As ``charge``, and where the ordering looks at them for fair shares too."""
        self.charge(record, amount, sign)
        if self.ordering.needs_usage:
            self.use(record, amount, sign)

    def use(self, record: JobRecord, amount: Amount, sign: int) -> None:
        """Count what a job holds more (or, with ``sign`` -1, less) for the fair shares of its queue and its user."""
        names = self.queues.by_name[record.queue].accounts
        if record.job.user:
            names = (*names, user_account(record.queue, record.job.user))
        self.usage.change(names, amount, sign, self.now)

    def use_of_all(self, sign: int) -> None:
        """Begin (``sign`` 1) or stop counting what runs for fair shares, where the ordering looks at them."""
        if not self.ordering.needs_usage:
            return
        for record in self.running.values():
            holders = record.holding_tasks()
            self.use(record, record.held_by(holders), sign)

    def begin_cycle(self) -> None:
        """Count what has been held and what stood idle since the last cycle; follow changed machines and cells."""
        self.rejudged.clear()
        self.verdicts.begin_cycle()
        if self.cluster.cells.stale:
            self.renew_cells()
        self.cluster.cells.regain(self.jobs)
        self._mark_judged()
        self.preemption_budget.earn(self.queues.by_name[ROOT_QUEUE].gpu_milli, self.now)
        self.idle_time.advance(self.now)
        self.moves.prune(self.jobs, self.now)

    def renew_cells(self, *, finds_rights: bool = True) -> None:
        """Follow changed machines and guarantees.

        Args:
            finds_rights: whether running work gets rights to cells that are there for it now.
        """
        self.cluster.cells.renew(self.queues, self.running.values(), finds_rights=finds_rights)
        for record in self.running.values():
            self.roster.mark(record, is_in_cells=self.cluster.cells.is_in_cells(record))

    def _mark_judged(self) -> None:
        """Let the roster know who has come into cells or out of them, as others took theirs or gave them back."""
        cells = self.cluster.cells
        for job in cells.judged:
            if (record := self.running.get(job)) is not None:
                self.roster.mark(record, is_in_cells=cells.is_in_cells(record))
                self.rejudged.add(job)
                self.rejudged_version += 1
        cells.judged.clear()

    def end_cycle(self) -> None:
        """Nothing more is decided at this instant: what is free now stands idle, where work may start."""
        self._mark_judged()
        self.decided_at = self.now
        idle_milli = {} if self.holds else self.cluster.idle_milli()
        for pool in self.entitlements.unlent:
            idle_milli.pop(pool, None)
        self.idle_time.set_idle(idle_milli)

    def settle(self, record: JobRecord, holdings: Sequence[Holding]) -> bool:
        """Find by what right work is on cards that it has just got; False if it cannot leave and takes what is owed.

        Every path that gives work a place asks this once the place is taken; a trial undoes it.
        """
        cells = self.cluster.cells
        return cells.allocator is None or cells.settle(record, holdings, self.jobs)

    def may_stand_in_for(self, record: JobRecord, holder: JobRecord) -> bool:
        """Whether a job may have the cards of running work in turn.

        What is in cells leaves for its own queue alone, and what started on cards that are reserved for it for nobody.
        """
        is_of_cells = record.queue != holder.queue and self.cluster.cells.is_in_cells(holder)
        return not is_of_cells and not self.reserved.has_user(holder)

    # ---- running ------------------------------------------------------------------------------------------------

    def off_roster(self) -> list[JobRecord]:
        """The running jobs that are not on the roster: found without a look at the others where there is none."""
        if len(self.running) == self.roster.count:
            return []
        return [record for record in self.running.values() if record.slot < 0]

    def watch_growth(self, record: JobRecord) -> None:
        """Note whether a running job has tasks that wait to join it."""
        if record.stop_trigger is None and any(task.state is TaskState.QUEUED for task in record.tasks):
            self.growing[record.id] = record
        else:
            self.growing.pop(record.id, None)

    def enroll(self, record: JobRecord) -> None:
        """Put a job that runs on the roster, as it is now; not a guest, who makes no room by leaving."""
        if record.id in self.guests:
            return
        self.roster.add(record, self.now, self.ordering.sizes(record), self.minimum_run_s(record))
        self.roster.mark(record, is_in_cells=self.cluster.cells.is_in_cells(record))

    def watch_deadline(self, record: JobRecord) -> None:
        """Schedule the end of a run by its time limit."""
        if record.job.time_limit_s is not None and record.started_at is not None:
            left = record.job.time_limit_s - record.attained_s + record.debt_s
            heapq.heappush(self.deadlines, (record.started_at + left, record.id, record.attempt))

    # ---- decisions ----------------------------------------------------------------------------------------------

    def next_id(self) -> int:
        """The number of the next decision."""
        number = self.next_decision
        self.next_decision += 1
        return number

    def emit(self, decision: Decision) -> None:
        """Take a decision: the next cycle returns it, and it waits for the engine's answer."""
        self.journal.require_no_trial()
        self.expect_answer(decision)
        self.outbox.append(decision)

    def expect_answer(self, decision: Decision) -> None:
        """The engine will be asked to carry a decision out."""
        nodes: Sequence[str] = ()
        if moves_memory(decision):
            tasks = self.jobs[decision.job].tasks if decision.job in self.jobs else ()
            nodes = tuple(dict.fromkeys(task.placement.node for task in tasks if task.placement is not None))
        self.pending.add(decision, nodes)


def user_account(queue: str, user: str) -> str:
    """Name of the fairness account of a user within a queue."""
    return f"{queue}/{user}"
