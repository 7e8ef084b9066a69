"""What the scheduler keeps of each job and task: mutable, private to the scheduling thread, read-only for others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from millpond.model.decisions import Placement, SuspendMode
from millpond.model.errors import ConflictError
from millpond.model.events import ProgressMeasured
from millpond.model.reasons import Cause
from millpond.model.resources import Amount
from millpond.model.states import JobState, Outcome, TaskState
from millpond.model.workloads import Job
from millpond.scheduling.feasibility.request_classes import RequestClass, amount_of
from millpond.scheduling.ledger.holdings import RUNNING, Holding, counted
from millpond.scheduling.lifecycle import Trigger, advance, job_state

BY_REQUEST = "request"
"""``JobRecord.suspended_by`` of work that was suspended on request."""


class MigrationStage(StrEnum):
    """How far a migration is."""

    UNDER_WAY = "under way"
    DONE = "done"
    REFUSED = "refused"
    """The engine could not move it; it stayed."""


@dataclass(frozen=True, slots=True)
class Migration:
    """How a job came, or comes, from one set of cards to another.

    Attributes:
        live: as it ran; otherwise it was ended and started anew.
        source, target: cards, as ``NODE/INDEX``.
        reason: why it was refused.
    """

    live: bool
    source: str
    target: str
    stage: MigrationStage = MigrationStage.UNDER_WAY
    reason: str = ""

    @property
    def text(self) -> str:
        """The text of a history, with the one word that says which of the two it was."""
        how = "live-migrated" if self.live else "restart-migrated"
        match self.stage:
            case MigrationStage.UNDER_WAY:
                return f"being {how} from {self.source} to {self.target}"
            case MigrationStage.DONE:
                return f"{how} from {self.source} to {self.target}"
            case MigrationStage.REFUSED:
                return f"stayed on {self.source}, as it could not be {how} to {self.target}: {self.reason}"


Group = tuple[str, str, str, str, int]
"""Jobs that an ordering of their own is for: its name, their queue, user (empty: all), pool and class of priority."""


@dataclass(slots=True, eq=False, repr=False)
class TaskRecord:
    """One task of a job.

    Attributes:
        vacating: what it has where it comes from until the engine says that it has come to ``holding``.
        outcome, exit_code: how it ended in the present or last run; None while it has not.
        surplus: its role was made smaller; its end says nothing about the job.
        device_failed: it was asked to end because a device failed under it.
        kept_until: it has failed for good, and its place is kept up to this instant; None: that is not so.
    """

    number: int
    role: str
    role_index: int
    state: TaskState = TaskState.QUEUED
    placement: Placement | None = None
    holding: Holding | None = None
    vacating: Holding | None = None
    outcome: Outcome | None = None
    exit_code: int | None = None
    detail: str = ""
    surplus: bool = False
    device_failed: bool = False
    kept_until: float | None = None

    def copy(self) -> TaskRecord:
        """The same task in a twin of its scheduler, with holdings of its own."""
        twin = TaskRecord.__new__(TaskRecord)
        twin.holding = None if self.holding is None else self.holding.copy()
        twin.vacating = None if self.vacating is None else self.vacating.copy()
        twin.number = self.number
        twin.role = self.role
        twin.role_index = self.role_index
        twin.state = self.state
        twin.placement = self.placement
        twin.outcome = self.outcome
        twin.exit_code = self.exit_code
        twin.detail = self.detail
        twin.surplus = self.surplus
        twin.device_failed = self.device_failed
        twin.kept_until = self.kept_until
        return twin

    def dismiss(self) -> None:
        """It waits and is not missed: the job is done without it."""
        self.surplus = True
        self.move(Trigger.CANCELLED_WAITING)

    def move(self, trigger: Trigger) -> None:
        """Go on to the next state by the lifecycle table."""
        self.state = advance(self.state, trigger)


@dataclass(slots=True, eq=False, repr=False)
class JobRecord:
    """One job and all its runs.

    Attributes:
        demand: what it asks for, shared with all jobs that ask for the same.
        queue: the one that its usage counts for.
        amount: what all its tasks together count for in quotas; ``count_tasks`` keeps it.
        elastic, gpu_milli: as in its demand.
        sequence: order of arrival.
        attempt: number of the current or last run, from 1; 0 before the first.
        placed_by: number of the decision by which it got the place it has: a start, or that it goes on.
        took_back: that start took back for the guarantee of its queue what others had borrowed.
        left_for: the job that took back what it had borrowed, when that happened last.
        began_at: confirmed start of the current or last run; None before that.
        started_at: since when the current run is at work; None while it does not run, or is suspended.
        attained_s: seconds of service kept from earlier runs.
        attained_before_s: the same when the current run began.
        reached_s: the most service it has come to in any run, also where that was lost: it takes longer than this.
        failed_starts: starts in a row that the engine refused.
        debt_s: seconds that the next or present run needs to catch up after a preemption.
        expected_s, cautious_s: forecast of the whole run; None when there is none.
        failures, out_of_memory_failures: runs that failed by the program's own fault.
        retry_at: until when it waits after such a failure, or a lost run, before it lines up again.
        held_until: when it lines up, where it is held back for cheaper or cleaner hours (``shifting``); 0: it is not.
        group: those whose order is its queue's or its kind's own, see ``ordering.turns``; None: the cluster's decides.
        key: its place among them, or in the order of all that wait; lower goes first.
        turn: the place in the order of all that wait which the cluster's ordering would give it.
        displaces_above: running work with a key above this may be displaced for it (selective orderings).
        line: which waiting line it stands in; empty while it does not wait.
        rekey_at: when its key is computed anew; 0 when that is not settled yet.
        work: how much work it is while it waits, in milli-card-seconds, where waits are bounded and it is not overdue.
        promised_at: when running work should have left enough room for it, once that was asked; 0 before.
        look_at: when it is looked at next whether it is overdue; 0 when that is not settled yet.
        idled_before: how much had stood idle in its pool, in milli-card-seconds, when its wait began.
        overdue: it has waited so long that it goes first (see ``cycle.overdue``), and leaves for no equal.
        slot: its place on the roster of running work, -1 when it is not on it.
        bins_outlived, size_class: where the job stands in what the ordering learns (see ``ordering.survival``).
        stop_trigger, stop_cause: what becomes of its tasks once the decided end has happened, and why.
        suspended_at: when it was last suspended.
        left_at: since when the current or last run is suspended, or was until its end; None if it is not.
        suspended_s: for how long that run was suspended before.
        suspended_by: what keeps it suspended; empty when it may go on. A request does so even when its run is lost.
        suspended_why, suspend_mode: why and how it was suspended last.
        suspend_requester: the user who requested that last; empty if none did.
        ready_at: since when it may go on, were there room.
        leave_s, return_s: how long leaving its devices, and coming back to them, took the last time.
        migration: the latest of this run, or the one that led to it.
        suspend_refused: its engine could not take it off its devices in this run.
        scaled_to_zero: why a service has no tasks and stands in no line; empty while it is wanted.
        progress: how fast its present or last run makes steps, as measured last.
        speeds: what was measured at each size that this run has had, see ``elastic.measured_speed``.
        cap_w: the power cap at which its cards are kept while it runs, see ``capping``; 0: none.
        packed_with: the job that shares its cards, see ``packing``; empty while it has them for itself.
    """

    job: Job
    demand: RequestClass
    sequence: int
    submitted_at: float
    id: str = field(init=False)
    queue: str = field(init=False)
    gpu_milli: int = field(init=False)
    elastic: bool = field(init=False)
    amount: Amount = field(init=False)
    requeued_at: float = field(init=False)
    attempt: int = 0
    placed_by: int = 0
    took_back: bool = False
    left_for: str = ""
    state: JobState = JobState.QUEUED
    first_started_at: float | None = None
    began_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    attained_s: float = 0.0
    attained_before_s: float = 0.0
    reached_s: float = 0.0
    failed_starts: int = 0
    debt_s: float = 0.0
    expected_s: float | None = None
    cautious_s: float | None = None
    preemptions: int = 0
    failures: int = 0
    out_of_memory_failures: int = 0
    retry_at: float = 0.0
    held_until: float = 0.0
    group: Group | None = None
    key: tuple[float, ...] = ()
    turn: float = 0.0
    displaces_above: float = float("inf")
    line: tuple[object, ...] = ()
    rekey_at: float = 0.0
    work: int = 0
    promised_at: float = 0.0
    look_at: float = 0.0
    idled_before: float = 0.0
    overdue: bool = False
    slot: int = -1
    bins_outlived: int = 0
    size_class: int = 0
    stop_trigger: Trigger | None = None
    stop_cause: Cause | None = None
    suspended_at: float = 0.0
    left_at: float | None = None
    suspended_s: float = 0.0
    suspended_by: str = ""
    suspended_why: Cause | None = None
    suspend_mode: SuspendMode = SuspendMode.FREEZE
    suspend_requester: str = ""
    ready_at: float = 0.0
    leave_s: float = 0.0
    return_s: float = 0.0
    migration: Migration | None = None
    suspend_refused: bool = False
    scaled_to_zero: str = ""
    progress: ProgressMeasured | None = None
    speeds: tuple[tuple[int, float], ...] = ()
    cap_w: float = 0.0
    packed_with: str = ""
    _tasks: list[TaskRecord] | None = field(init=False)
    _common_tasks: Sequence[TaskRecord] = ()
    """What it has had in common with copies, which nobody changes; its tasks, while it has none of its own."""

    def __post_init__(self) -> None:
        job, demand = self.job, self.demand
        self.id, self.queue = job.id, job.charged_queue
        self.gpu_milli, self.elastic, self.amount = demand.gpu_milli, demand.elastic, demand.amount
        self.requeued_at = self.submitted_at
        tasks = self._tasks = []
        for index, role in enumerate(job.roles):
            for _ in range(role.desired):
                tasks.append(TaskRecord(len(tasks), role.name, index))

    @property
    def tasks(self) -> list[TaskRecord]:
        """Its tasks; own ones from now on, where it has had them in common with copies."""
        tasks = self._tasks
        if tasks is None:
            tasks = self._tasks = [task.copy() for task in self._common_tasks]
        return tasks

    @tasks.setter
    def tasks(self, tasks: list[TaskRecord]) -> None:
        self._tasks = tasks

    def copy(self, demand: RequestClass) -> JobRecord:
        """The same job in a twin of its scheduler, which stands in no line yet.

        Both have their tasks in common until they are asked for them: few jobs of a twin are ever looked at closely.

        Args:
            demand: the twin's own.
        """
        twin = JobRecord.__new__(JobRecord)
        twin.demand, twin.line = demand, ()
        if self._tasks is not None:
            self._common_tasks, self._tasks = self._tasks, None
        twin._common_tasks, twin._tasks = self._common_tasks, None
        twin.requeued_at = self.requeued_at
        twin.attempt, twin.placed_by, twin.took_back = self.attempt, self.placed_by, self.took_back
        twin.left_for = self.left_for
        twin.state = self.state
        twin.attained_s, twin.attained_before_s = self.attained_s, self.attained_before_s
        twin.reached_s = self.reached_s
        twin.failed_starts = self.failed_starts
        twin.debt_s = self.debt_s
        twin.preemptions, twin.failures = self.preemptions, self.failures
        twin.out_of_memory_failures = self.out_of_memory_failures
        twin.group, twin.key, twin.turn = self.group, self.key, self.turn
        twin.displaces_above = self.displaces_above
        twin.rekey_at = self.rekey_at
        twin.work, twin.promised_at = self.work, self.promised_at
        twin.look_at, twin.overdue = self.look_at, self.overdue
        twin.idled_before, twin.held_until = self.idled_before, self.held_until
        twin.slot = self.slot
        twin.bins_outlived = self.bins_outlived
        twin.suspended_at, twin.left_at, twin.suspended_s = self.suspended_at, self.left_at, self.suspended_s
        twin.suspended_by, twin.suspended_why = self.suspended_by, self.suspended_why
        twin.suspend_mode, twin.suspend_requester = self.suspend_mode, self.suspend_requester
        twin.ready_at, twin.leave_s, twin.return_s = self.ready_at, self.leave_s, self.return_s
        twin.suspend_refused = self.suspend_refused
        twin.scaled_to_zero = self.scaled_to_zero
        twin.progress, twin.speeds, twin.packed_with = self.progress, self.speeds, self.packed_with
        twin.cap_w = self.cap_w
        twin.job, twin.sequence, twin.submitted_at = self.job, self.sequence, self.submitted_at
        twin.id, twin.queue, twin.gpu_milli = self.id, self.queue, self.gpu_milli
        twin.elastic, twin.amount, twin.size_class = self.elastic, self.amount, self.size_class
        twin.stop_trigger, twin.stop_cause, twin.migration = self.stop_trigger, self.stop_cause, self.migration
        twin.first_started_at, twin.started_at, twin.ended_at = self.first_started_at, self.started_at, self.ended_at
        twin.began_at = self.began_at
        twin.expected_s, twin.cautious_s, twin.retry_at = self.expected_s, self.cautious_s, self.retry_at
        return twin

    def keep_tasks(self) -> None:
        """Go on with the very tasks that were just given to a copy, which has looked at them and has its own."""
        if self._tasks is None:
            self._tasks = list(self._common_tasks)

    @property
    def is_parked(self) -> bool:
        """Whether it lost its run while it was suspended on request: it stands in no line until it is resumed."""
        return self.suspended_by == BY_REQUEST and self.state is JobState.QUEUED

    @property
    def kept(self) -> TaskRecord | None:
        """The task with which it has failed for good, while its place is kept; its mates, if any, are being ended."""
        if not self.job.keep_s:
            return None
        running = (task for task in self.tasks if task.state is TaskState.RUNNING)
        return next((task for task in running if task.kept_until is not None), None)

    @property
    def is_ending(self) -> bool:
        """Whether all that is left of its run has been asked to end."""
        return self.stop_trigger is not None and self.kept is None

    def count_tasks(self) -> None:
        """Sum up ``amount`` after tasks have joined or left the list."""
        self.amount = self._sum(self.tasks)

    def amount_of(self, tasks: Sequence[TaskRecord]) -> Amount:
        """What these of its tasks count for in quotas."""
        return self.amount if len(tasks) == len(self.tasks) else self._sum(tasks)

    def held_by(self, tasks: Sequence[TaskRecord]) -> Amount:
        """What these tasks count for now: running ones for all they asked for, suspended ones for what they hold."""
        holds = [task.holding.hold for task in tasks if task.holding is not None]
        if holds.count(RUNNING) == len(holds):
            return self.amount_of(tasks)
        roles = self.job.roles
        parts = [counted(roles[task.role_index].request, hold) for task, hold in zip(tasks, holds, strict=True)]
        return parts[0] if len(parts) == 1 else sum(parts, Amount())

    def _sum(self, tasks: Sequence[TaskRecord]) -> Amount:
        roles = self.job.roles
        counts = Counter(task.role_index for task in tasks)
        return amount_of((roles[index].request, count) for index, count in counts.items())

    def refresh(self) -> None:
        """Derive the job's state from its tasks."""
        tasks = self.tasks
        if len(tasks) == 1:
            self.state = _SINGLE[tasks[0].state]
        else:
            self.state = job_state(task.state for task in tasks if not task.surplus or not task.state.ended)

    def renumber(self) -> None:
        """Before a run: only the tasks that are wanted, role by role, numbered from 0 without gaps.

        Frameworks take a task's number for its rank.
        """
        if len(self.tasks) > 1:
            tasks = self.tasks = sorted(self.wanted(), key=lambda task: task.role_index)
            self.amount = self.demand.amount
            for number, task in enumerate(tasks):
                task.number = number

    def wanted(self) -> list[TaskRecord]:
        """The tasks that its roles still want."""
        return [task for task in self.tasks if not task.surplus]

    def holding_tasks(self) -> list[TaskRecord]:
        """Those that hold anything."""
        return [task for task in self.tasks if task.holding is not None]

    def queued(self) -> list[TaskRecord]:
        """The tasks that wait for a place."""
        return [task for task in self.tasks if task.state is TaskState.QUEUED]

    def note_left(self, since: float | None, now: float) -> None:
        """Its run is suspended since then from now on; None: it is at work."""
        if self.left_at is not None:
            self.suspended_s += now - self.left_at
        self.left_at = since

    def service_s(self, now: float) -> float:
        """Seconds of service so far, earlier runs and the current one together, without catching up."""
        if self.started_at is None:
            return self.attained_s
        return self.attained_s + max(now - self.started_at - self.debt_s, 0.0)


def refuse_kept(record: JobRecord) -> None:
    """Refuse what can be asked of work that runs alone.

    Raises:
        ConflictError: the job has failed, and its place is kept.
    """
    if record.kept is not None:
        raise ConflictError(
            f"job {record.id!r} has failed, and its place is kept for a look inside",
            f"look inside with `pond attach {record.id}`, or give the place back with `pond stop {record.id}`",
        )


_SINGLE = {state: job_state((state,)) for state in TaskState}
