"""The bodies of the REST API, shared by the server and its clients.

Instants are seconds since 1970 (UTC). Shares of a card are milli (1000 = one card), memory is MiB, CPU is milli-cores.
The body of a submission is a job file (``specs.job.JobFile``) as JSON.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, RootModel

from millpond.specs.fields import MOST_TASKS

API_PREFIX = "/api/v1"
IDEMPOTENCY_HEADER = "Idempotency-Key"
"""Request header of a submission: repeating it with the same key gives the same job, never a second one."""

FIRST_CURSOR = "1:"
"""The one cursor that a client may make up: a log stream from here begins with a job's first run, not with its present
one. All others are a server's, to be passed back as they came."""

SERVER_FILE = "server.json"
STANDBY_FILE = "standby.json"
"""The same about a server that stands by."""
"""Name of the file in the state directory by which clients find a running server (``ServerFile``)."""


FIRST_LOGIN_FILE = "first-login"
"""Name of the file in the state directory with the invitation for the first login from elsewhere."""
LONGEST_REASON = 200
LATEST = 1e11
"""A bound for instants, some thousand years away."""


class Body(BaseModel):
    """Base of all bodies: a newer server may add fields, an older client ignores them."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class ServerFile(Body):
    """``server.json`` in the state directory while a server runs.

    Attributes:
        url: base address, without a slash at the end.
        token_path: file whose content is the API token.
        certificate_path: file with the certificate that the server shows; empty where it does not encrypt.
    """

    url: str
    pid: int
    token_path: str
    version: str
    certificate_path: str = ""


class DeviceGrant(Body):
    """What a task holds of one device."""

    uuid: str
    index: int
    model: str
    compute_milli: int
    limit_milli: int
    memory_mib: int
    fake: bool = False


class TaskInfo(Body):
    """One task of a job in its present (or last) attempt.

    Attributes:
        state: a ``model.workloads.TaskState``.
        node: empty while it has no place.
        exit_code: as a shell shows it, once it has ended.
        detail: what the engine said about its end.
    """

    task: int
    role: str
    state: str
    node: str = ""
    devices: list[DeviceGrant] = []
    exit_code: int | None = None
    detail: str = ""


class ArrayInfo(Body):
    """How far the members of an array have come.

    Attributes:
        indices: which members there are: ``0-99``.
        parallel: at most so many at once; None: no bound.
        sweep: whether the members are trials of a sweep.
        unfed: not yet handed to the scheduler.
        waiting: handed to the scheduler, and in line.
        running: started and not ended.
        pruned: trials that were stopped because they fell behind.
    """

    count: int
    indices: str
    parallel: int | None = None
    sweep: bool = False
    unfed: int = 0
    waiting: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    pruned: int = 0

    @property
    def ended(self) -> int:
        """Members that have ended, however."""
        return self.succeeded + self.failed + self.cancelled + self.pruned

    @property
    def summary(self) -> str:
        """For people: ``3412/10000 done, 32 running, 2 failed``."""
        parts = {"running": self.running, "failed": self.failed, "cancelled": self.cancelled, "stopped": self.pruned}
        return ", ".join([f"{self.ended}/{self.count} done", *(f"{n} {what}" for what, n in parts.items() if n)])


class JobInfo(Body):
    """A job as lists and details show it.

    Attributes:
        name: the name its submitter gave; empty when none.
        state: a ``model.workloads.JobState``.
        attempt: its present run, from 1; 0 before the first.
        gpus: what it asks for, for people: ``2``, ``0.25``, ``4 x 2`` (tasks x cards), ``0``.
        exit_code: of an ended job: 0, or the code of the first task that failed.
        reason: while it waits, why, in one sentence.
        warnings: what was ignored in its job file; only in the answer to a submission.
        group: the group of users it belongs to; empty when none.
        array: of an array: how far its members have come.
        parent, index: of a member: its array, and its number in it.
        unsandboxed: its present (or last) run can see files and processes of others.
        limited_by: what keeps that run to the CPUs and the memory it asked for: ``control-group`` (all its processes
            together) or ``process`` (each by itself); empty: unknown, or it never ran.
        resting: why a service has no replicas for now; empty when it has, or waits for them.
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
    tasks: list[TaskInfo] = []
    preemptions: int = 0
    failures: int = 0
    exit_code: int | None = None
    reason: str = ""
    warnings: list[str] = []
    group: str = ""
    array: ArrayInfo | None = None
    parent: str = ""
    index: int | None = None
    unsandboxed: bool = False
    limited_by: str = ""
    resting: str = ""


class JobList(Body):
    """Jobs, newest first; ``truncated`` says that ``limit`` cut the list."""

    jobs: list[JobInfo]
    truncated: bool = False


class TrialInfo(Body):
    """One trial of a sweep.

    Attributes:
        state: a ``model.workloads.JobState``; or ``stopped``: it fell behind; or ``waiting``: not handed to the
            scheduler yet.
        value, step: its best value of the metric, and where it was.
        last, last_step: its latest value; None where that was not finite, or nothing came.
        stopped: why it was stopped.
    """

    index: int
    job: str
    parameters: dict[str, int | float | str | bool]
    state: str
    value: float | None = None
    step: float | None = None
    last: float | None = None
    last_step: float | None = None
    stopped: str = ""


class TrialList(Body):
    """Trials, the best first; ``truncated`` says that ``limit`` cut the list.

    Attributes:
        metric, goal: by what they are compared, and whether ``minimize`` or ``maximize``; empty without one.
    """

    job: str
    metric: str = ""
    goal: str = ""
    trials: list[TrialInfo]
    truncated: bool = False


class JobDocument(RootModel[dict[str, Any]]):
    """A job file as it was submitted: not read any further, so that newer fields are kept."""


class ResizeRequest(Body):
    """Another number of tasks for an elastic job.

    Attributes:
        tasks: how many the role should have, within its bounds; 0 for a service that may go without replicas.
        role: which; empty where the job has one only.
    """

    tasks: Annotated[int, Field(ge=0, le=MOST_TASKS, strict=True)]
    role: str = ""


class RemedyInfo(Body):
    """The smallest change found that would start a job now.

    Attributes:
        field, value: for programs: a field of the job file and its new value.
    """

    change: str
    field: str = ""
    value: str = ""


class StartInfo(Body):
    """When a waiting job should start, and what this rests on; ``latest_at`` is None without a bound."""

    earliest_at: float
    latest_at: float | None = None
    basis: str = ""


class ReasonInfo(Body):
    """Why a job waits or runs.

    Attributes:
        cause: one word, a ``model.reasons.Cause``.
        numbers: the numbers of the summary by name.
        nodes: how many nodes fail first on which filter (``fits``: on none), most frequent first.
        position: place among those that wait, from 1.
        opens_at: when the closed nodes in the way are open again; None: unknown, or none is.
    """

    job: str
    state: str
    cause: str
    summary: str
    numbers: dict[str, int] = {}
    nodes: dict[str, int] = {}
    position: int | None = None
    remedy: RemedyInfo | None = None
    start: StartInfo | None = None
    blocked_by: str = ""
    opens_at: float | None = None


class DeviceInfo(Body):
    """One device, its capacity, what is free of it, and who holds it.

    Attributes:
        health: a ``model.devices.Health``; only an ``ok`` device is handed out.
        holders: ids of the jobs with a slice of it.
    """

    uuid: str
    index: int
    vendor: str
    model: str
    memory_mib: int
    free_memory_mib: int
    free_compute_milli: int
    health: str = "ok"
    health_detail: str = ""
    fake: bool = False
    holders: list[str] = []


class ClosureInfo(Body):
    """A span in which a machine takes no new work.

    Attributes:
        until: None: until somebody opens it.
        drain: preemptible work there is asked to leave when the span begins.
        by: who wanted it.
    """

    begin: float
    until: float | None = None
    reason: str = ""
    drain: bool = False
    by: str = ""


class NodeInfo(Body):
    """One machine.

    Attributes:
        schedulable: new work may start there, as far as people and its engine are concerned.
        fake: any of its devices is pretended.
        closure: what keeps it closed now.
        draining: preemptible work there was asked to leave; ``jobs`` are what that still waits for.
        planned: when it will be closed.
        jobs: ids of the jobs that hold anything of it.
        cpu_capacity_milli: CPUs that may be handed out, which may be more than there are.
        unsandboxed: why jobs there are not kept apart from each other; empty when they are.
        unlimited: why all processes of a task together are not kept to what it asked for; empty when they are.
    """

    name: str
    pool: str
    cpu_milli: int
    free_cpu_milli: int
    cpu_capacity_milli: int = 0
    memory_mib: int
    free_memory_mib: int
    devices: list[DeviceInfo] = []
    rack: str = ""
    zone: str = ""
    schedulable: bool = True
    unschedulable_reason: str = ""
    fake: bool = False
    closure: ClosureInfo | None = None
    draining: bool = False
    planned: list[ClosureInfo] = []
    jobs: list[str] = []
    unsandboxed: str = ""
    unlimited: str = ""


class CloseRequest(Body):
    """A machine should take no new work: from now on, or from ``begin`` on.

    Attributes:
        reason: for people.
        until: when it opens by itself, in seconds since 1970; None: when somebody opens it.
        drain: preemptible work there is asked to leave when the span begins.
        begin: plans it for then: work that is known to run into it does not start there, and it always drains.
    """

    reason: Annotated[str, Field(max_length=LONGEST_REASON, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")] = ""
    until: Annotated[float, Field(ge=0, le=LATEST, strict=True)] | None = None
    drain: bool = False
    begin: Annotated[float, Field(ge=0, le=LATEST, strict=True)] | None = None


class OpenRequest(Body):
    """A machine should take new work again.

    Attributes:
        planned: what is planned for it is given up too.
    """

    planned: bool = False


class NodeList(Body):
    """All machines of the cluster."""

    nodes: list[NodeInfo]


class EventInfo(Body):
    """One entry of a job's history: something that happened, or something that was decided.

    Attributes:
        seq: rises within one history; in one of the whole server it is the place in the log.
        about: the job or the node that it is about.
        what: the event's or decision's type (``JobSubmitted``, ``Start``).
        decided: true for a decision of the scheduler, false for an event.
        text: one sentence for people.
        data: the record itself.
    """

    seq: int
    at: float
    what: str
    decided: bool
    text: str
    data: dict[str, Any]
    about: str = ""


class EventList(Body):
    """What happened and what was decided, oldest first."""

    events: list[EventInfo]


class LogChunk(Body):
    """A piece of a task's output: one line of an NDJSON stream.

    Attributes:
        offset, next_offset: where the piece begins and ends in the task's log file, in bytes.
        data: the text; bytes that are not UTF-8 become U+FFFD.
        cursor: ask with ``?cursor=`` to go on behind this piece after a lost connection.
        attempt_over: everything of this task in this attempt has been sent.
        job_over: the last line of the stream: the job has ended. ``exit_code`` is then the job's.
    """

    job: str
    task: int
    attempt: int
    offset: int
    next_offset: int
    data: str = ""
    cursor: str = ""
    attempt_over: bool = False
    job_over: bool = False
    exit_code: int | None = None


class UsageRow(Body):
    """What one group (a user, a queue, a model, a kind, a job) held of devices of one model.

    Attributes:
        model: empty for work without devices.
        gpu_hours: of whole cards; a quarter card for four hours is one.
        cost: by the price list; None where it has no price for the model.
    """

    name: str
    model: str
    jobs: int
    gpu_hours: float
    cpu_hours: float
    memory_gib_hours: float
    cost: float | None = None


class DiskInfo(Body):
    """What a user or a group holds on the server's disk: what jobs wrote, with their logs, and datasets.

    Attributes:
        kind: ``user`` or ``group``.
        limit_bytes: what may be held; None without a limit.
    """

    kind: str
    name: str
    used_bytes: int
    limit_bytes: int | None = None


class UsageList(Body):
    """Usage between two instants, the largest first; what is still held counts up to ``until``.

    Attributes:
        currency: of the costs; empty without a price list.
        disk: by user, and by queue for the groups that own them: what is held on the server's disk now.
    """

    by: str
    since: float
    until: float
    currency: str = ""
    rows: list[UsageRow]
    disk: list[DiskInfo] = []


class DeliveryInfo(Body):
    """Something that was or is to be told to a webhook.

    Attributes:
        state: ``waiting``, ``delivered`` or ``given up``.
        due_at: when it is tried next, while it waits.
        trouble: what went wrong last.
    """

    id: int
    hook: str
    at: float
    text: str
    state: str
    tries: int
    due_at: float
    trouble: str = ""


class DeliveryList(Body):
    """Deliveries, newest first."""

    deliveries: list[DeliveryInfo]


class PlannedTask(Body):
    """Where a task would run; ``devices`` are UUIDs."""

    task: int
    role: str
    node: str
    devices: list[str] = []


class PlannedVictim(Body):
    """A job that would make room. ``how`` is ``preempt`` or ``suspend``, ``cause`` a ``model.reasons.Cause``."""

    job: str
    user: str
    how: str
    cause: str


class QuotaInfo(Body):
    """A queue's cards before and after; ``limit_gpu_milli`` is None without a limit."""

    queue: str
    gpu_milli_now: int
    gpu_milli_after: int
    limit_gpu_milli: int | None = None


class PlanInfo(Body):
    """What would become of a job if it were submitted now.

    Attributes:
        tasks: where it would run, when it starts now.
        victims: who would have to leave first; then it starts when they have left.
        reason: why it would wait, when it does not start now.
        borrowed_gpu_milli: how much of it would run beyond what its queue is guaranteed.
    """

    starts_now: bool
    tasks: list[PlannedTask] = []
    victims: list[PlannedVictim] = []
    reason: ReasonInfo | None = None
    borrowed_gpu_milli: int = 0
    quota: QuotaInfo


class ExtendRequest(Body):
    """More time for a job with a time limit: so many seconds beyond its present limit."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    by_s: float = Field(gt=0, le=366 * 86_400, allow_inf_nan=False)


class LinkInfo(Body):
    """A link to what a job serves.

    Attributes:
        open_path: signs one browser in and leads on to ``path``; works once, for ``good_for_s`` seconds.
        path: where the programs are, for those who are signed in or send the token.
    """

    open_path: str
    path: str
    good_for_s: float


class ServerInfo(Body):
    """The server itself.

    Attributes:
        engine: what carries decisions out: ``local``.
        fake: whether any device is pretended.
        jobs: how many jobs are in which state.
        unsandboxed: why jobs are not kept apart from each other on this machine; empty when they are.
        unlimited: why all processes of a task together are not kept to what it asked for; empty when they are.
    """

    version: str
    url: str
    engine: str
    fake: bool
    pid: int
    state_dir: str
    started_at: float
    ordering: str
    placement: str
    jobs: dict[str, int] = {}
    unsandboxed: str = ""
    unlimited: str = ""


class HealthInfo(Body):
    """Answer of ``/healthz`` and ``/readyz``.

    Attributes:
        standby: another server leads, and this one waits to take over.
        leader: base address of the one that leads, when that is another.
    """

    status: str
    standby: bool = False
    leader: str = ""


class ErrorDetail(Body):
    """One thing that is wrong in what was sent.

    Attributes:
        loc: path of the field (``tasks.min``); empty for the whole.
        line, column: from 1; 0 when unknown.
        hint: the nearest valid name, the allowed values, or what to do.
    """

    loc: str = ""
    line: int = 0
    column: int = 0
    message: str
    hint: str = ""


class ErrorBody(Body):
    """What is wrong and what to do about it.

    Attributes:
        code: the kind of error in one word, for programs: ``invalid``, ``not-found``, ``conflict``, ``unavailable``,
            ``unauthorized``, ``forbidden``, ``too-many-tries``, ``defect``, or ``request`` where the request itself
            is malformed.
        id: finds an unexpected error in the server's log.
    """

    cause: str
    code: str = ""
    remedy: str = ""
    details: list[ErrorDetail] = []
    id: str = ""


class ErrorInfo(Body):
    """Body of every answer that is not a success."""

    error: ErrorBody
