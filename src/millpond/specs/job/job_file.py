"""The fields of a job file."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema

from millpond.model.hardware.nodes import DEFAULT_POOL
from millpond.model.tenancy.tenants import DEFAULT_QUEUE
from millpond.specs.errors import BadValueError, as_written
from millpond.specs.job.adopted import AdoptedPods
from millpond.specs.job.arrays import ArrayFile
from millpond.specs.job.dataset_refs import dataset_ref
from millpond.specs.job.fields import (
    CheckpointFile,
    Cpus,
    Deadline,
    Duration,
    Extras,
    Failures,
    Gpus,
    Memory,
    Name,
    Preemptible,
    PriorityName,
    RetryDelayFile,
    SecretName,
    Slowdown,
    Tasks,
    Topology,
)
from millpond.specs.job.images import ImageRequest, Pinned
from millpond.specs.job.mounts import MOST_MOUNTS, After, DataSource, HostPath, Ship
from millpond.specs.job.serving import SERVING_KINDS, RequestHold, Scale, Serve
from millpond.specs.job.snapshots import Digest
from millpond.specs.job.sweeps import SweepFile
from millpond.specs.job.windows import Windows
from millpond.specs.validation import STORED, VARIABLE, ByPrograms, JobName, Strict

_ENV_NAME = re.compile(VARIABLE)
_SCALE_TO_ZERO: Final = Scale.model_construct(_fields_set={"idle_after"})
"""The rule of a service that may go without replicas and names none."""
_ONE_TASK: Final = Tasks(desired=1, min=1, max=1)
_MOST_BYTES: Final = 128_000
"""Linux gives programs arguments and variables of up to 128 KiB each; the rest is for what shell lines begin with."""
AS_A_FILE: Final = "send what is longer as a file (`ship: true`)"


def _command(value: Any, info: ValidationInfo) -> Any:
    """A shell line as text, a program with arguments as a tuple."""
    words = value if isinstance(value, list) else [value]
    for word in words:
        if isinstance(word, bool):  # of the shell's commands, YAML reads two as truth values
            raise BadValueError(f"{str(word).lower()} is not text", "put it in quotes")
    if any(not isinstance(word, (str, int, float)) for word in words):
        raise BadValueError(
            f"{as_written(value)} is not a command", "write a shell line, or a list of a program and its arguments"
        )
    texts = tuple(str(word) for word in words)
    if not texts or not texts[0].strip():
        raise BadValueError("an empty command", "say what to run")
    if any("\0" in text for text in texts):
        raise BadValueError("a command with a NUL character", "remove it")
    if info.context is not STORED and any(len(text.encode()) > _MOST_BYTES for text in texts):
        raise BadValueError("a command with an argument of more than 128 KB", AS_A_FILE)
    return texts if isinstance(value, list) else texts[0]


def _env(value: Any, info: ValidationInfo) -> Any:
    if not isinstance(value, dict):
        return value
    for name, content in value.items():
        if not isinstance(name, str) or not _ENV_NAME.fullmatch(name):
            raise BadValueError(f"{name!r} is not a name of a variable", "use letters, digits and _")
        if isinstance(content, bool) or not isinstance(content, (str, int)) or "\0" in str(content):
            raise BadValueError(f"the value {content!r} of {name} is not text", "put it in quotes")
        if info.context is not STORED and len(name) + len(str(content).encode()) > _MOST_BYTES:
            raise BadValueError(f"the variable {name} has more than 128 KB", AS_A_FILE)
    return {name: str(content) for name, content in value.items()}


Command = Annotated[
    str | tuple[str, ...],
    BeforeValidator(_command),
    WithJsonSchema({"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
]


_EACH_BY_ITSELF: Final = dict.fromkeys(
    ("resources", "requests", "limits"), "write gpus, cpus, memory and extras as fields, each of one task"
)


class RoleFile(Strict):
    """One role of a job with several; what it leaves out comes from the job's own fields.

    Attributes:
        name: of the role; tasks know it as ``MILLPOND_ROLE``.
        tasks: identical tasks of this role.
        gpus: cards of one task.
        gpu_models: any of these.
        cpus: CPU cores of one task.
        memory: host memory of one task.
        extras: named extra resources of one task.
        command: what its tasks run.
        retry_on: as the job's field, for failures of this role's tasks.
        fail_on: as the job's field, for failures of this role's tasks.
        daemon: its tasks do not keep the job running: it is done when all others are, and they are ended then, such as
            parameter servers.
    """

    instead = _EACH_BY_ITSELF
    name: Name
    tasks: Tasks | None = None
    gpus: Gpus | None = None
    gpu_models: list[str] | None = None
    cpus: Cpus | None = None
    memory: Memory | None = None
    extras: Extras | None = None
    command: Command | None = None
    retry_on: Failures | None = None
    fail_on: Failures | None = None
    daemon: bool = False


class JobFile(Strict):
    """A job as people write it. Amounts (``gpus``, ``cpus``, ``memory``, ``extras``) are per task.

    Attributes:
        kind: ``train`` runs to an end, ``dev`` is for interactive work, ``service`` answers requests until it is
            stopped.
        queue: the one that it joins, with none below it; left out: that of the submitter's group, else `default`.
        pool: the set of machines that it runs on.
        cluster: the one of several clusters that it runs in, all tasks of it; ``any``, or left out: the one in which it
            starts first.
        priority: class of urgency; queues may allow some classes only. ``background`` runs on what is idle,
            outside every quota, and leaves for all other work.
        gpus: cards of one task: whole cards (``2``), a part of one card (``0.25`` or ``25%``), or both its compute
            and its memory (``{compute: 25%, memory: 4GiB}``).
        cpus: CPU cores of one task.
        memory: host memory of one task.
        topology: within what all tasks must or should lie; a bare word is required.
        env: variables of its tasks.
        checkpoint: how it saves its work when it has to leave.
        preemptible: whether it may be ended for others and run again later; if not, it borrows nothing: where
            queues have guarantees, one of them has to cover it. With ``beyond-min`` that holds for the minimum of
            ``tasks`` alone: the others may be borrowed, and are given back when others want them.
        extras: named extra resources of one task, such as RDMA cards and licences.
        name: what people call it; ``after`` and commands find it by this. Its id is made of it.
        gpu_models: any of these; empty is any.
        tasks: identical tasks that start together.
        roles: several kinds of tasks instead of ``tasks``.
        command: a shell line, or a program and its arguments.
        workdir: where it runs; default: the folder of the job file.
        secrets: variables whose values the server keeps (``pond secret``): the submitter's own, else their group's.
        retries: how often a failure of the program itself is tried again.
        retry_on: these failures alone are tried again, as often as ``retries`` says: exit codes, signals, and the
            classes ``user-error``, ``out-of-memory``, ``start-failed``, ``node-lost``, ``device-lost``; left out: by
            the class of the failure.
        fail_on: these failures are never tried again, whatever else is said.
        retry_delay: how long it waits after a failure of its own; each further one doubles that.
        on_task_lost: when a task fails: all end and run again, it alone is started again beside the others, or the
            others go on without it as long as the minimum is there.
        time_limit: it is ended after this long.
        deadline: when it should have ended, with a time zone: ``2026-12-01 18:00 Europe/Berlin``; or how long after
            its submission: ``6h``. It does not end the job; the ordering ``edf``, of the cluster or of the
            queue, goes by it.
        flexible: so much later than it could the job may start, where energy costs or emits less then, but not so late
            that it might miss its deadline; at most a week. Which of both counts, the configuration says (``energy``).
        max_slowdown: its steps may take longer by this part, from 1 to 50 %, so that its cards can be kept at a power
            cap that saves energy. Jobs of the same user, queue and name are measured with caps, by the steps that they
            report (``millpond.job.report``), and later ones have the best.
        keep: when a task has failed and no retry is left, its place is kept this long, with its cards, files and
            ``/tmp``, for a look inside (``pond exec``); ``pond stop`` gives it back before. At most a day.
        reservation: name of an advance reservation of its queue (``pond reserve``), on whose cards alone it starts;
            once that is over, anywhere. Left out: it may use those of its queue.
        min_run_time: it is not preempted before it has run this long.
        window: the hours in which it may run; it leaves its cards at their end and goes on when they come again.
        suspend: how it may be asked to leave its cards without ending, in a pool that suspends: not at all, by halting
            (its device memory stays), or by moving its device memory to host memory too; left out: the last, if it has
            one task or its checkpoints are transparent, else the first. With ``swap`` a slice is refused managed
            memory, which cannot be moved.
        share_class: who goes first on a card that several share; left out: services are ``online``, work of low
            priority is ``backfill``.
        ship: send ``workdir`` with the job, which then runs in a copy; otherwise it runs in place.
        payload: digest of one content sent along, for programs such as ``client.sdk.functions``.
        data: what it reads, by name: paths of the machine, or ``dataset/NAME@VERSION``.
        output: folder of the machine that it writes to; default: one for each attempt, kept with the job.
        after: jobs that must have ended before it may start: others of the same file by their names, the submitter's
            own by theirs, or ids.
        idempotency_key: submitting it again with the same key gives the same job.
        network: the machine's, or one that its tasks on a machine have to themselves; left out: as the server is set.
        serve: how what a ``dev`` or ``service`` job serves is reached.
        array: many such jobs, which differ in their index alone.
        sweep: a job for each trial of some parameters.
        image: its tasks run in containers of it; default: in the machine's own environment.
        stdin: its one task reads what a client sends it (``pond run -i``); otherwise its standard input is empty.
        pinned: what the server found for it; not written by users.
        adopted: the pods of others that it stands for, on Kubernetes; not written by users.
    """

    instead = _EACH_BY_ITSELF | dict.fromkeys(
        ("port", "ports"), "a `dev` or `service` job listens on the port that MILLPOND_PORT names"
    )
    kind: Literal["train", "dev", "service"] = "train"
    name: JobName | None = None
    queue: Name = DEFAULT_QUEUE
    pool: Name = DEFAULT_POOL
    cluster: Name | None = None
    priority: PriorityName = "normal"
    gpus: Gpus = Gpus(cards=0)
    gpu_models: list[str] = Field(default=[])
    cpus: Cpus = 1000
    memory: Memory = 1024
    tasks: Tasks | None = None
    roles: Annotated[list[RoleFile], Field(min_length=1, max_length=100)] | None = None
    topology: Topology = Topology(prefer="any")
    command: Command | None = None
    workdir: Annotated[str, Field(min_length=1, pattern=r"^[^\x00]*$")] | None = None
    env: Annotated[dict[str, str], BeforeValidator(_env)] = Field(default={})
    secrets: Annotated[list[SecretName], Field(max_length=100)] = Field(default=[])
    retries: Annotated[int, Field(ge=0, le=1_000)] = 0
    retry_on: Failures = Field(default=[])
    fail_on: Failures = Field(default=[])
    retry_delay: RetryDelayFile = RetryDelayFile()
    on_task_lost: Literal["all", "restart-task", "shrink"] = "all"
    time_limit: Annotated[Duration, Field(gt=0)] | None = None
    deadline: Deadline | None = None
    flexible: Annotated[Duration, Field(gt=0, le=7 * 86_400)] | None = None
    max_slowdown: Slowdown | None = None
    keep: Annotated[Duration, Field(gt=0, le=86_400)] | None = None
    checkpoint: CheckpointFile = CheckpointFile()
    reservation: Name | None = None
    min_run_time: Duration = 0.0
    preemptible: Preemptible = True
    window: Windows | None = None
    suspend: Literal["never", "freeze", "swap"] | None = None
    share_class: Literal["online", "normal", "backfill"] | None = None
    extras: Extras = Field(default={})
    ship: Ship = False
    payload: Annotated[Digest | None, ByPrograms()] = None
    data: Annotated[dict[Name, DataSource], Field(max_length=MOST_MOUNTS)] = Field(default={})
    output: HostPath | None = None
    after: After = After()
    idempotency_key: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    network: Literal["private", "host"] | None = None
    serve: Serve | None = None
    array: ArrayFile | None = None
    sweep: SweepFile | None = None
    image: ImageRequest | None = None
    stdin: bool = False
    pinned: Annotated[Pinned | None, ByPrograms()] = None
    adopted: Annotated[AdoptedPods | None, ByPrograms()] = None

    @property
    def serves(self) -> bool:
        """Whether its tasks get a port to listen on."""
        return self.kind in SERVING_KINDS

    @property
    def network_named(self) -> str | None:
        """The network that the file asks for; None where it leaves that to the server."""
        return "private" if self.serve is not None and self.serve.listen == "private" else self.network

    @property
    def named_paths(self) -> list[str]:
        """Places of the machine that it names."""
        found = [source for source in self.data.values() if dataset_ref(source) is None]
        return found + [path for path in (self.output, None if self.ship else self.workdir) if path]

    @property
    def asks_for_provisions(self) -> bool:
        """Whether something may have to be found or fetched before it can start."""
        return self.image is not None or bool(self.data) or self.pinned is not None

    def names_memory(self, role: str) -> bool:
        """Whether it says how much memory the tasks of a role have, rather than leaving it at the default."""
        written = next((each for each in self.roles or () if each.name == role), None)
        return "memory" in self.model_fields_set or (written is not None and written.memory is not None)

    @property
    def may_scale_to_zero(self) -> bool:
        """Whether it may scale to zero while there are no requests."""
        return self.kind == "service" and self.tasks is not None and self.tasks.min == 0

    @property
    def scale(self) -> Scale | None:
        """The rule for the number of replicas; None where that stays as it is."""
        scale = None if self.serve is None else self.serve.scale
        return _SCALE_TO_ZERO if scale is None and self.may_scale_to_zero else scale

    @property
    def hold(self) -> RequestHold | None:
        """How requests wait for a replica; None where they do not."""
        hold = None if self.serve is None else self.serve.hold
        return RequestHold() if hold is None and self.may_scale_to_zero else hold

    def all_roles(self) -> list[RoleFile]:
        """Its roles with everything they inherit filled in."""
        written = self.roles or [RoleFile(name="worker", tasks=self.tasks)]
        inherited = {
            name: getattr(self, name)
            for name in ("gpus", "gpu_models", "cpus", "memory", "extras", "command", "retry_on", "fail_on")
        }
        return [
            role.model_copy(
                update={
                    "tasks": role.tasks or _ONE_TASK,
                    **{name: value for name, value in inherited.items() if getattr(role, name) is None},
                }
            )
            for role in written
        ]
