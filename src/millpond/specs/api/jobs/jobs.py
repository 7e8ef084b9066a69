"""Bodies about jobs: how they look, and links to what they serve."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from millpond.model.amounts import pace_text
from millpond.model.states import JobState, TaskState
from millpond.specs.api.base import ErrorBody

MOST_TOGETHER: Final = 1_000
"""Jobs of one submission, or of one request that does the same to several."""

STOPPED_EARLY: Final = "stopped early"
"""For people, the state of a trial that was cancelled because it fell behind in its sweep."""

_FINAL: Final = frozenset(state.value for state in JobState if state.ended)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceGrant:
    """What a task holds of one device."""

    uuid: str
    index: int
    model: str
    compute_milli: int
    limit_milli: int
    memory_mib: int
    fake: bool = False


def beyond_exit_code(detail: str, code: int | None) -> str:
    """What the engine said about an end, without the exit code where that is shown already."""
    code_text = f"exit code {code}"
    return "" if detail == code_text else detail.removeprefix(f"{code_text}: ")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskInfo:
    """One task of a job in its present (or last) attempt.

    Attributes:
        state: a ``model.states.TaskState``.
        node: empty while it has no place.
        cluster: of several clusters, that of its node.
        exit_code: as a shell shows it, once it has ended.
        detail: what the engine said about its end.
    """

    task: int
    role: str
    state: str
    node: str = ""
    cluster: str = ""
    devices: list[DeviceGrant] = field(default_factory=list)
    exit_code: int | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayInfo:
    """How far the members of an array have come.

    Attributes:
        indices: which members there are: ``0-99``; in lists of jobs, of a text of more than 200 letters its beginning.
        parallel: at most so many at once; None: no bound.
        sweep: whether the members are trials of a sweep.
        unsubmitted: not yet handed to the scheduler.
        waiting: handed to the scheduler, and in line.
        running: started and neither suspended nor ended.
        pruned: trials that were stopped because they fell behind.
    """

    count: int
    indices: str
    parallel: int | None = None
    sweep: bool = False
    unsubmitted: int = 0
    waiting: int = 0
    running: int = 0
    suspended: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    pruned: int = 0

    @property
    def ended(self) -> int:
        """Members that have ended, however."""
        return self.succeeded + self.failed + self.cancelled + self.pruned

    def indices_within(self, letters: int) -> str:
        """The text of the indices, or so much of it, with an ellipsis behind it."""
        return self.indices if len(self.indices) <= letters else f"{self.indices[: letters - 1]}…"

    @property
    def summary(self) -> str:
        """For people: ``3412/10000 done, 32 running, 2 failed``."""
        parts = {
            "running": self.running,
            "suspended": self.suspended,
            "failed": self.failed,
            "cancelled": self.cancelled,
            STOPPED_EARLY: self.pruned,
        }
        return ", ".join([f"{self.ended}/{self.count} done", *(f"{n} {what}" for what, n in parts.items() if n)])


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineInfo:
    """When a job should have ended, and whether it should.

    Attributes:
        verdict: ``accept``, ``at-risk``, ``missed``, or of one that has succeeded ``met``; empty: not asked, or it
            ended otherwise.
        likely_end_at: as likely before as behind its end; None when not known.
        latest_end_at: it hardly ends later; None when no bound can be given.
        unknown: what is not known of that; empty when both can be said.
    """

    at: float
    verdict: str = ""
    likely_end_at: float | None = None
    latest_end_at: float | None = None
    unknown: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressInfo:
    """How fast a run makes steps, by what its program reports.

    Attributes:
        at: when that was measured; nothing is said again of a speed that stays.
        steps_per_s: null while it cannot be measured.
        per_card: the same for each whole card that it had then; null without cards.
        ignored: what is wrong with its reports, which are ignored meanwhile; empty: nothing.
    """

    at: float
    steps_per_s: float | None = None
    per_card: float | None = None
    ignored: str = ""

    @property
    def text(self) -> str:
        """For people: ``3.4/s, 0.85/s per card``."""
        if self.steps_per_s is None:
            return f"not measured, its reports are ignored: {self.ignored}"
        if self.per_card in (None, self.steps_per_s):
            return pace_text(self.steps_per_s)
        return f"{pace_text(self.steps_per_s)}, {pace_text(self.per_card)} per card"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobInfo:
    """A job as lists and details show it.

    Attributes:
        name: the name its submitter gave; empty when none.
        state: a ``model.states.JobState``.
        attempt: its present run, from 1; 0 before the first.
        submitted_at: when its user submitted it; of a member, its array.
        eligible_at: since when it can, or could, start, as what it comes after has ended and its image and data are
            there; of a member, when its array handed it to the scheduler, and of that, when it did so first. Waits
            count from here. Null before that.
        started_at: when its present or last run started.
        gpus: what it has, or asks for while it has nothing, for people: ``2``, ``0.25``, ``4 x 2`` (tasks x cards),
            ``3 x 2 (2-8)`` with the bounds of an elastic job, ``0``.
        gpu_milli: what it asks for, in thousandths of cards; of an elastic job for as many tasks as it wants, also
            while it has fewer or more.
        exit_code: of an ended job: 0, or the code of the first task that failed; of one whose place is kept, that.
        reason: while it waits, why, in one sentence.
        warnings: what was ignored in its job file; only in the answer to a submission.
        group: the group of users it belongs to; empty when none.
        array: of an array: how far its members have come.
        parent, index: of a member: its array, and its number in it.
        stopped_early: of a trial of a sweep that was cancelled because it fell behind: how it did; else empty.
        unsandboxed: its present (or last) run can see files and processes of others.
        limited_by: what keeps that run to the CPUs and the memory it asked for: ``control-group`` (all its processes
            together) or ``process`` (each by itself); empty: unknown, or it never ran.
        held_by: what keeps that run to its parts of cards: ``gate``, ``mps``, ``mig``, ``dmem`` or ``nothing``; empty:
            it has whole cards, none, or pretended ones.
        hold_reason: why nothing does.
        memory_by_kernel: the kernel bounds its device memory by control group, beside that.
        network: that of that run: ``host`` (the machine's) or ``private`` (shared by its tasks alone); empty: unknown.
        scaled_to_zero: why a service has no replicas for now; empty when it has, or waits for them.
        suspension: how it is suspended, and why; of one that runs, why it could not be suspended; of one that is
            queued, that it waits to be resumed, as its run ended while people kept it suspended; else empty.
        leaving: it was asked to leave its cards, and has not left them yet.
        migration: how this run came, or comes, to other cards than it had, ``live-migrated`` or ``restart-migrated``,
            or why it did not; empty when that was never asked.
        suspended_at: since when that run is suspended, or was until its end; None when it is not.
        suspended_s: how long it was suspended before that, in seconds.
        switching_s: how long leaving its cards, and coming back to them, took the last time; 0 before that.
        share_class: who goes first where it shares a device: ``online``, ``normal``, ``backfill``.
        kept_until: of one that has failed: up to when the place of its failed task is kept for a look inside, unless it
            is given back before; None: it is not.
        requests_wait_until: when the first of the requests that wait for a replica of a service is answered with an
            error; None where none waits.
        limit_ends_at: when the time limit of its present run ends, unless it is suspended before, which uses none of
            it; null while it does not run, and where it has none.
        deadline: when it should have ended, and whether it should; None: it has none.
        max_slowdown: by which part its steps may take longer, so that its cards can be kept at a power cap; 0: by none.
        power_cap_w: that cap while it runs, for each card; 0: none.
        shares_with: the job that runs on its cards beside it; empty while it has them for itself.
        progress: how fast its present or last run makes steps; null while it does not run, or reports nothing.
        apart: the server has a copy of another server's state: it starts and ends nothing, and does not know what
            becomes of the job.
    """

    id: str
    name: str
    queue: str
    pool: str
    user: str
    kind: str
    priority: str
    state: str
    attempt: int
    submitted_at: float
    first_started_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    gpus: str = "0"
    gpu_milli: int = 0
    tasks: list[TaskInfo] = field(default_factory=list)
    preemptions: int = 0
    failures: int = 0
    exit_code: int | None = None
    reason: str = ""
    warnings: list[str] = field(default_factory=list)
    group: str = ""
    array: ArrayInfo | None = None
    parent: str = ""
    index: int | None = None
    stopped_early: str = ""
    unsandboxed: bool = False
    limited_by: str = ""
    held_by: str = ""
    hold_reason: str = ""
    memory_by_kernel: bool = False
    network: str = ""
    scaled_to_zero: str = ""
    suspension: str = ""
    leaving: bool = False
    migration: str = ""
    suspended_at: float | None = None
    suspended_s: float = 0.0
    switching_s: float = 0.0
    share_class: str = "normal"
    kept_until: float | None = None
    requests_wait_until: float | None = None
    deadline: DeadlineInfo | None = None
    max_slowdown: float = 0.0
    power_cap_w: float = 0.0
    shares_with: str = ""
    progress: ProgressInfo | None = None
    apart: bool = False
    eligible_at: float | None = None
    limit_ends_at: float | None = None

    @property
    def queued_at(self) -> float:
        """Since when it could start, of a job that ran."""
        return self.submitted_at if self.eligible_at is None else self.eligible_at

    @property
    def state_text(self) -> str:
        """Its state for people."""
        return STOPPED_EARLY if self.stopped_early else self.state

    @property
    def is_kept(self) -> bool:
        """Whether it has failed and goes on only in that the place of the failed task is kept."""
        return self.kept_until is not None and self.state in (JobState.RUNNING, JobState.STOPPING)

    @property
    def settled(self) -> str:
        """How its work has ended: a final ``model.states.JobState``, also while its place is kept; empty before."""
        if self.is_kept:
            return JobState.FAILED.value
        return self.state if self.state in _FINAL else ""

    @property
    def kept_task(self) -> TaskInfo | None:
        """The task whose place is kept."""
        return next((task for task in self.tasks if self.is_kept and task.state == TaskState.RUNNING), None)

    @property
    def culprit(self) -> TaskInfo | None:
        """The task that it ended by, as far as any says something of its end: the first with an exit code."""
        unfinished = [task for task in self.tasks if task.detail and task.state != "succeeded"]
        return next(iter(sorted(unfinished, key=lambda task: not task.exit_code)), None)

    @property
    def blamed(self) -> str:
        """That task and the engine's word about its end, as far as they say more than the job's exit code."""
        task = self.culprit
        if task is None:
            return ""
        return f"{self.naming(task)}{beyond_exit_code(task.detail, self.exit_code)}".removesuffix(": ")

    @property
    def failure(self) -> str:
        """How one that has failed came to that: ``exit code 3``, or ``task 1 (worker): exit code 3``."""
        task = self.culprit
        if task is None:
            return "it never ran" if self.exit_code is None else f"exit code {self.exit_code}"
        return f"{self.naming(task)}{task.detail}"

    def naming(self, task: TaskInfo) -> str:
        """A task before what is said of it; nothing where the job has one task alone."""
        return f"task {task.task} ({task.role}): " if len(self.tasks) > 1 else ""

    def ran_s(self, now: float) -> float | None:
        """Seconds that its present or last run has been at work, not suspended; None while it waits for one.

        Also None while the scheduler's clock, by which it has started, is ahead of ``now``: after the machine's own was
        set back, or for a client whose clock is slow.
        """
        if self.started_at is None or self.state == "queued":
            return None
        ends = [at for at in (self.suspended_at, self.ended_at) if at is not None]
        if not ends and now < self.started_at:
            return None
        return max(0.0, min(ends, default=now) - self.started_at - self.suspended_s)


ActiveOrder = Literal["line", "cards", "priority"]
"""Orders of jobs that have not ended: those that wait, the next first; what asks for most cards; the highest class."""
JobOrder = Literal["newest", "oldest", ActiveOrder]
"""What a list of jobs begins with: by the time of submission, or an ``ActiveOrder``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobList:
    """Jobs in the order asked for; ``truncated`` says that ``limit`` cut the list."""

    jobs: list[JobInfo]
    truncated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkInfo:
    """A link to what a job serves.

    Attributes:
        open_path: signs one browser in and leads on to ``path``; works once, for ``good_for_s`` seconds.
        path: where the programs are, for those who are signed in or send the token.
        open_url: the same link where the job has an origin of its own, whole; otherwise empty.
    """

    open_path: str
    path: str
    good_for_s: float
    open_url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobActed:
    """What came of it for one of several jobs.

    Attributes:
        state: of the job, if it was done; else empty.
        error: why it was not.
        successor: the job that stands for it from now on, where that is another: the one that was submitted again,
            or the present revision of a service.
    """

    job: str
    state: str = ""
    successor: str = ""
    error: ErrorBody | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsActed:
    """What came of it for each of several jobs, in their order."""

    jobs: list[JobActed] = field(default_factory=list)
