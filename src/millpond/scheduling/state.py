"""Everything a scheduler knows, in one place, and the moves that keep its parts in step.

The parts of the cycle (intake, placing, reclaiming, explaining) all work on one ``State``. Starting and ending tasks
goes through the few methods here, suspending and resizing through ``scheduling.suspension.suspension`` and
``scheduling.elastic.resizing`` on top of them, so that ledger, queue usage, fairness and waiting lines never disagree.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace

from millpond.model import windows
from millpond.model.decisions import Decision, Grant, Placement, Start, Stop
from millpond.model.reasons import Cause
from millpond.model.resources import Amount
from millpond.model.states import JobState, TaskState
from millpond.model.tenants import Limit
from millpond.model.workloads import Job
from millpond.scheduling.cycle.waiting_lines import WaitingLines
from millpond.scheduling.feasibility.request_classes import RequestClasses
from millpond.scheduling.ledger.cluster import Cluster
from millpond.scheduling.ledger.holdings import Holding, HoldState
from millpond.scheduling.ledger.journal import Journal
from millpond.scheduling.lifecycle import Trigger
from millpond.scheduling.nodes.cordon import Cordons
from millpond.scheduling.ordering.base import NEVER, Ordering
from millpond.scheduling.ordering.registry import make_ordering
from millpond.scheduling.ordering.survival import size_class
from millpond.scheduling.reclaiming.roster import Roster
from millpond.scheduling.records import JobRecord, Migration, MigrationStage, TaskRecord
from millpond.scheduling.settings import Settings
from millpond.scheduling.tenancy.fairness import DecayedUsage
from millpond.scheduling.tenancy.limits import AccountLimitUsage
from millpond.scheduling.tenancy.queues import QueueTree

ACTIVE = frozenset({TaskState.STARTING, TaskState.RUNNING, TaskState.FROZEN, TaskState.SWAPPED, TaskState.STOPPING})
"""States in which a task holds something."""

_INTERRUPTING = (Cause.DRAINED, Cause.MIGRATED, Cause.WINDOW_CLOSED, Cause.LENDING_OVER)
"""Why a run ends that goes on later and counts neither as preempted nor as failed."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 300.0
"""A job whose start was refused waits so long before the next try; each refusal in a row doubles it."""


class State:
    """The scheduler's whole memory.

    Attributes:
        now: the instant of the latest event or cycle.
        decided_at: that of the latest cycle.
        running: jobs that hold something, by id, in order of their start.
        roster: the running work that victim rules look at.
        suspended: jobs that may go on when there is room, by id.
        kept: jobs that have failed and whose place is kept, by id.
        elastic: those of the running jobs that can run with fewer or more tasks, by id.
        growing: running jobs some of whose tasks wait to join them, by id.
        outbox: decisions taken between cycles, handed out by the next one.
        pending: decisions that wait for the engine's answer, by id.
        deadlines: heap of (instant, job, attempt): time limits of running jobs.
        paused: heap of (instant, sequence, job): jobs whose start was refused, or that wait before another try, line
            up again then.
        fresh: jobs that joined a waiting line since the last cycle.
        holds: why nothing new starts anywhere, in words, by kind of trouble; empty while all is well.
        window_changes: heap of (instant, sequence, job): when the windows of jobs open or close, see
            ``scheduling.tenancy.windows``.
        unlent: names of the pools that do not lend now.
        rekeys: heap of (instant, sequence, job): when a waiting job's key is computed anew.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.now = 0.0
        self.decided_at = -1.0
        self.journal = Journal()
        self.cluster = Cluster(self.journal)
        self.cordons = Cordons(self.cluster)
        self.queues = QueueTree(self.journal)
        self.limits = AccountLimitUsage(self.journal)
        self.usage = DecayedUsage(settings.fair_half_life_s)
        self.ordering: Ordering = make_ordering(settings)
        self.jobs: dict[str, JobRecord] = {}
        self.demands = RequestClasses()
        self.waiting = WaitingLines()
        self.roster = Roster()
        self.running: dict[str, JobRecord] = {}
        self.suspended: dict[str, JobRecord] = {}
        self.kept: dict[str, JobRecord] = {}
        self.elastic: dict[str, JobRecord] = {}
        self.growing: dict[str, JobRecord] = {}
        self.outbox: list[Decision] = []
        self.pending: dict[int, Decision] = {}
        self.deadlines: list[tuple[float, str, int]] = []
        self.paused: list[tuple[float, int, JobRecord]] = []
        self.fresh: list[JobRecord] = []
        self.holds: dict[Cause, str] = {}
        self.window_changes: list[tuple[float, int, JobRecord]] = []
        self.unlent: set[str] = set()
        self.rekeys: list[tuple[float, int, JobRecord]] = []
        self.next_decision = 1
        self.next_sequence = 0
        self.protects = False
        """Whether any job was ever promised a minimum run time."""

    # ---- jobs enter and leave -----------------------------------------------------------------------------------

    def submit(self, job: Job) -> JobRecord:
        """Enter a new job and put it into its waiting line.

        Raises:
            InvalidInputError: it names more kinds of extra resources than the ledger has room to count.
        """
        self.journal.require_no_trial()
        self.cluster.words.enter_extras(name for role in job.roles for name, _ in role.request.extras)
        record = self.new_record(job, self.next_sequence, self.now)
        self.cluster.words.shapes_of(record.demand)
        self.next_sequence += 1
        self.jobs[job.id] = record
        self.protects = self.protects or job.minimum_run_s > 0
        self.ordering.submitted(record, self.now)
        self.enqueue(record)
        if job.windows:
            self.watch_window(record)
        return record

    def new_record(self, job: Job, sequence: int, submitted_at: float) -> JobRecord:
        """A record of a job that nothing has happened to yet."""
        record = JobRecord(job, self.demands.of(job), sequence, submitted_at)
        record.size_class = size_class(record.gpu_milli)
        return record

    def enqueue(self, record: JobRecord) -> None:
        """Put a job whose tasks are queued into its line, with its key as of now; out of its hours, into none.

        Nor does one that people suspended and that lost its run: it waits until they resume it.
        """
        self.journal.require_no_trial()
        if record.is_parked or (record.job.windows and not self.is_in_window(record)):
            return
        record.key, record.displaces_above, _ = self.ordering.line_up(record, self.now)
        self.waiting.add(record)
        record.rekey_at = 0.0
        self.fresh.append(record)

    def is_in_window(self, record: JobRecord) -> bool:
        """Whether the job may run at this hour."""
        return not record.job.windows or windows.is_open(record.job.windows, self.now)

    def watch_window(self, record: JobRecord) -> None:
        """Remember when the windows of a job open or close next."""
        change = windows.next_change(record.job.windows, self.now) if record.job.windows else None
        if change is not None:
            heapq.heappush(self.window_changes, (change, record.sequence, record))

    def watch_fresh(self) -> None:
        """Remember when to renew the keys of those that joined a line since the last cycle and still wait."""
        for record in self.fresh:
            if record.line:
                _, _, due = self.ordering.line_up(record, self.now)
                if due < NEVER:
                    record.rekey_at = due
                    heapq.heappush(self.rekeys, (due, record.sequence, record))
        self.fresh.clear()

    def rekey_due(self) -> None:
        """Compute the keys anew whose time has come."""
        rekeys, now = self.rekeys, self.now
        while rekeys and rekeys[0][0] <= now:
            due, sequence, record = rekeys[0]
            if record.rekey_at != due or not record.line:
                heapq.heappop(rekeys)
                continue
            key, record.displaces_above, record.rekey_at = self.ordering.line_up(record, now)
            self.waiting.rekey(record, key)
            heapq.heapreplace(rekeys, (record.rekey_at, sequence, record))

    def pause(self, record: JobRecord) -> None:
        """A start was refused: the next try comes after a pause that doubles with each refusal in a row."""
        pause = min(FIRST_PAUSE_S * 2.0 ** (record.failed_starts - 1), LONGEST_PAUSE_S)
        self.pause_until(record, max(self.now + pause, record.retry_at))

    def pause_until(self, record: JobRecord, instant: float) -> None:
        """It lines up again, or its lost tasks join it again, at an instant and not before."""
        self.growing.pop(record.id, None)
        heapq.heappush(self.paused, (instant, record.sequence, record))

    def end_pauses(self) -> None:
        """Jobs whose start was refused join their line again once their pause is over."""
        while self.paused and self.paused[0][0] <= self.now:
            _, _, record = heapq.heappop(self.paused)
            if record.id in self.running:
                self.watch_growth(record)
            elif record.state is JobState.QUEUED and not record.line and not record.scaled_to_zero:
                self.enqueue(record)

    def rekey(self, record: JobRecord) -> None:
        """Its place in the order may have changed (a forecast came, its spec changed)."""
        if record.line:
            self.waiting.remove(record)
            record.line = ()  # out of its hours it joins none
            self.enqueue(record)

    # ---- what queues and users may hold -------------------------------------------------------------------------

    @property
    def has_bounds(self) -> bool:
        """Whether anything bounds what queues or users hold."""
        return self.queues.has_bounds or self.limits.in_force or bool(self.unlent)

    def admits(self, record: JobRecord, amount: Amount) -> bool:
        """Whether a job may hold ``amount`` more, by its queue, all queues above, its user, and what its pool lends."""
        if not self.queues.admits(record.queue, amount) or self.limits.exceeded(record.job, amount) is not None:
            return False
        return self.lends(record, amount)

    def lends(self, record: JobRecord, amount: Amount) -> bool:
        """Whether the pool of a job lends ``amount`` to its queue now, or need not."""
        if not amount.gpu_milli or record.job.pool not in self.unlent:
            return True
        return not self.queues.borrows(record.queue, amount)

    def charge(self, record: JobRecord, amount: Amount, sign: int) -> None:
        """Count what a job holds more (or, with ``sign`` -1, less) for its queues and its user."""
        self.queues.charge(record.queue, amount, sign)
        if self.limits.in_force:
            self.limits.charge(record, amount, sign)

    def set_limit(self, limit: Limit) -> None:
        """A user or a queue may hold more or less from now on."""
        holders = (
            (record, record.held_by([task for task in record.tasks if task.holding is not None]))
            for record in self.running.values()
        )
        self.limits.set_limit(limit, holders)

    # ---- starting -----------------------------------------------------------------------------------------------

    def start(self, record: JobRecord, placed: Sequence[tuple[TaskRecord, Holding]], cause: Cause) -> Start:
        """Commit a start whose holdings and queue charge are already taken."""
        self.journal.require_no_trial()
        joins = record.id in self.running
        if not joins:
            self.waiting.remove(record)
            record.attempt += 1
            record.line = ()
            record.renumber()
            record.suspend_refused = False
            record.migration = self._restarted(record, cause)
            for task in record.tasks:
                task.outcome = task.exit_code = None
            self.running[record.id] = record
            if record.elastic:
                self.elastic[record.id] = record
        placements = []
        for task, holding in placed:
            task.move(Trigger.START_DECIDED)
            task.holding = holding
            task.placement = self.placement_of(task, holding)
            task.outcome = task.exit_code = None
            task.device_failed = False
            placements.append(task.placement)
        if self.ordering.needs_usage:
            self._use(record, record.amount_of([task for task, _ in placed]), 1)
        record.refresh()
        if joins or len(placed) < len(record.tasks):
            if record.slot >= 0:
                self.enroll(record)
            self.watch_growth(record)
        decision = Start(self.next_id(), record.id, record.attempt, cause, tuple(placements), joins)
        self.pending[decision.id] = decision
        return decision

    def placement_of(self, task: TaskRecord, holding: Holding) -> Placement:
        """A holding as the engine is told of it."""
        cluster, shape = self.cluster, holding.shape
        grants = [
            Grant(cluster.device_ids[device], shape.compute_milli, shape.limit_milli, memory)
            for device, memory in zip(holding.devices, holding.memory_mib, strict=True)
        ]
        return Placement(task.number, task.role, cluster.node_name(holding.node), tuple(grants))

    def _restarted(self, record: JobRecord, cause: Cause) -> Migration | None:
        """The migration that a run which begins now completes."""
        if record.migration is None or cause is not Cause.MIGRATED:
            return None
        return replace(record.migration, stage=MigrationStage.DONE)

    def watch_growth(self, record: JobRecord) -> None:
        """Tasks of a running job that wait will join it when there is room."""
        if record.stop_trigger is None and any(task.state is TaskState.QUEUED for task in record.tasks):
            self.growing[record.id] = record
        else:
            self.growing.pop(record.id, None)

    def enroll(self, record: JobRecord) -> None:
        """Put a job that runs on the roster, as it is now."""
        self.roster.add(record, self.now, self.ordering.sizes(record))

    # ---- ending -------------------------------------------------------------------------------------------------

    def stop(
        self, record: JobRecord, trigger: Trigger, cause: Cause, *, tasks: Sequence[TaskRecord] = (), for_job: str = ""
    ) -> None:
        """Decide the end of a job's run (or of some of its tasks); they hold everything until they have ended.

        A run that is to end for good is not brought back by a reason to run it again.

        Args:
            trigger: what becomes of the tasks once they have ended.
        """
        chosen = [
            task for task in (tasks or record.tasks) if task.state in ACTIVE and task.state is not TaskState.STOPPING
        ]
        whole, kept = not tasks, record.kept
        if whole:
            self.decide_fate(record, trigger, cause)
        if not chosen:
            return
        for task in chosen:
            task.move(Trigger.STOP_DECIDED)
        record.refresh()
        numbers = () if whole and kept is None else tuple(task.number for task in chosen)
        grace = record.job.checkpoint.grace_s if kept is None else 0.0
        self.emit(Stop(self.next_id(), record.id, record.attempt, cause, numbers, grace, for_job))

    def decide_fate(self, record: JobRecord, trigger: Trigger, cause: Cause) -> None:
        """Decide what becomes of the tasks of a run once they have ended: nothing joins it, or is asked of it, now."""
        self.journal.require_no_trial()
        if record.stop_trigger is None or trigger is not Trigger.ENDED_FOR_RETRY:
            record.stop_trigger, record.stop_cause = trigger, cause
        self.roster.remove(record)
        for jobs in (self.growing, self.suspended, self.kept):
            jobs.pop(record.id, None)

    def release(self, record: JobRecord, task: TaskRecord) -> None:
        """A task holds nothing any more."""
        self.journal.require_no_trial()
        if task.vacating is not None:
            self.cluster.change(task.vacating, HoldState.NOTHING)
            task.vacating = None
        holding = task.holding
        if holding is None:
            return
        runs = holding.hold is HoldState.RUNNING
        self.count(record, record.amount_of((task,)) if runs else record.held_by((task,)), -1)
        self.cluster.change(holding, HoldState.NOTHING)
        task.holding = None

    def close_run(self, record: JobRecord) -> None:
        """No task of the job holds anything any more: the run is over; the job waits again or has ended."""
        self.journal.require_no_trial()
        if record.started_at is not None or record.id in self.suspended:
            record.failed_starts = 0  # what was refused was growth, not this run
        self.limits.count(record, -1)
        for jobs in (self.running, self.suspended, self.kept, self.elastic, self.growing):
            jobs.pop(record.id, None)
        self.roster.remove(record)
        record.started_at = None
        displaced = record.stop_cause in (Cause.PREEMPTED, Cause.RECLAIMED, Cause.SUSPENDED_TOO_LONG)
        interrupted = displaced or record.stop_cause in _INTERRUPTING
        if record.stop_trigger is not None:
            self._settle_queued(record)
        record.stop_trigger = record.stop_cause = None
        record.refresh()
        if not record.is_parked:
            record.suspended_by = ""
        if record.state is JobState.QUEUED:
            for task in record.wanted():
                if task.state.ended:
                    task.move(Trigger.ENDED_FOR_RETRY)
            record.requeued_at = self.now
            record.debt_s = 0.0
            if displaced:
                record.preemptions += 1
            if interrupted:
                record.debt_s = self.settings.preemption_cost.of(record.gpu_milli)
            self.ordering.left(record, self.now)
            if record.scaled_to_zero:
                return
            if record.failed_starts:
                self.pause(record)
            elif record.retry_at > self.now:
                self.pause_until(record, record.retry_at)
            else:
                self.enqueue(record)
        else:
            record.ended_at = self.now
            self.ordering.left(record, self.now)

    def _settle_queued(self, record: JobRecord) -> None:
        """Tasks that wait (to join, or to run again) share the fate that was decided for the whole job."""
        if record.stop_trigger is Trigger.ENDED_CANCELLED:
            trigger = Trigger.CANCELLED_WAITING
        elif record.stop_trigger is Trigger.ENDED_BADLY:
            trigger = Trigger.ENDED_BADLY
        elif record.stop_trigger is Trigger.ENDED_WELL:
            for task in record.queued():
                task.dismiss()
            return
        else:
            return
        for task in record.queued():
            task.move(trigger)

    # ---- small things -------------------------------------------------------------------------------------------

    def stop_counting_use(self) -> None:
        """Before another policy takes over: usage is settled up to now, and nobody uses anything any more."""
        if self.ordering.needs_usage:
            self._use_of_all(-1)

    def begin_counting_use(self) -> None:
        """After another policy took over: if it looks at usage, what runs counts from now on."""
        if self.ordering.needs_usage:
            self._use_of_all(1)

    def _use_of_all(self, sign: int) -> None:
        for record in self.running.values():
            holders = [task for task in record.tasks if task.holding is not None]
            self._use(record, record.held_by(holders), sign)

    def count(self, record: JobRecord, amount: Amount, sign: int) -> None:
        """From now on the job holds so much more (or less): quotas and, where it matters, its fair share."""
        self.charge(record, amount, sign)
        if self.ordering.needs_usage:
            self._use(record, amount, sign)

    def _use(self, record: JobRecord, amount: Amount, sign: int) -> None:
        self.usage.change(record.queue, amount, sign, self.now)
        if record.job.user:
            self.usage.change(user_account(record), amount, sign, self.now)

    def holds_back(self, record: JobRecord) -> bool:
        """Whether the ordering leaves free room to others although the job might fit."""
        settings, cluster = self.settings, self.cluster
        if settings.preempt or not settings.reserve or record.elastic:
            return False
        return self.ordering.holds_back(record, cluster.free_gpu_milli, cluster.gpu_capacity_milli, self.now)

    def capacity(self) -> Amount:
        """All there is to share, for shares of it."""
        arrays = self.cluster.arrays
        count = arrays.node_count
        pools, nodes = self.cluster.pools, [node for node in self.cluster.nodes[:count] if node is not None]
        cpu = sum(pools[node.pool].cpu_capacity_milli(node) for node in nodes)
        return Amount(self.cluster.gpu_capacity_milli, cpu, sum(node.memory_mib for node in nodes))

    def next_id(self) -> int:
        """A number that no decision has yet."""
        number = self.next_decision
        self.next_decision += 1
        return number

    def emit(self, decision: Decision) -> None:
        """Take a decision: the next cycle hands it out, and then it waits for the engine's answer."""
        self.journal.require_no_trial()
        self.pending[decision.id] = decision
        self.outbox.append(decision)

    def watch_deadline(self, record: JobRecord) -> None:
        """Remember when the run that just began reaches its time limit."""
        if record.job.time_limit_s is not None and record.started_at is not None:
            left = record.job.time_limit_s - record.attained_s + record.debt_s
            heapq.heappush(self.deadlines, (record.started_at + left, record.id, record.attempt))


def user_account(record: JobRecord) -> str:
    """Name of the fairness account of a user within a queue."""
    return f"{record.queue}/{record.job.user}"
