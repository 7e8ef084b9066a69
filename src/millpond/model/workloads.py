"""Jobs, roles and tasks: what users submit, as the scheduler sees it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final

from millpond.model.contents import Content
from millpond.model.errors import InvalidInputError
from millpond.model.hardware.node_selection import NodeSelection
from millpond.model.hardware.nodes import DEFAULT_POOL
from millpond.model.hardware.topology import Level
from millpond.model.resources import TaskRequest
from millpond.model.sharing import ShareClass
from millpond.model.states import Outcome
from millpond.model.task_spacing import SpacingRule
from millpond.model.tenancy.tenants import BACKGROUND_QUEUE, DEFAULT_QUEUE
from millpond.model.windows import Window

LONGEST_JOB_ID: Final = 120
UNBOUNDED_PREEMPTIONS: Final = 1_000_000
_MOST_STEPS: Final = 60
"""So often a delay is made longer: beyond that, any is the longest."""


class Kind(StrEnum):
    """What a job is for."""

    TRAIN = "train"
    """Batch work that runs to an end."""
    DEV = "dev"
    """Interactive work with idle and time limits."""
    SERVICE = "service"
    """Long-running replicas; latency first."""


class Priority(IntEnum):
    """Classes of urgency; a higher class goes first and may preempt a lower one."""

    BACKGROUND = -1
    """Outside every quota: it takes what is idle, and leaves for all other work."""
    LOW = 0
    NORMAL = 1
    HIGH = 2
    CRITICAL = 3


class GangRule(StrEnum):
    """What a gang does when it loses one task."""

    ALL = "all"
    RESTART_TASK = "restart-task"
    SHRINK = "shrink"
    APART = "apart"
    """The others go on, and it is not started again: of pods that somebody else made, who makes another if need be."""


class CheckpointMode(StrEnum):
    """How a job saves its work before it is ended."""

    NONE = "none"
    SIGNAL = "signal"
    TRANSPARENT = "transparent"
    """It need not: it can be taken off its cards as it is, and put back."""


class Suspendable(StrEnum):
    """How a job may be asked to leave its cards without ending, in a pool that suspends."""

    AUTO = "auto"
    """As with ``swap`` if it has one task or its checkpoints are transparent, else as with ``never``."""
    NEVER = "never"
    FREEZE = "freeze"
    """It halts; its device memory stays."""
    SWAP = "swap"
    """It halts, or its device memory moves to host memory too."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How a job saves its work.

    Attributes:
        signal: name of the signal that gives notice.
        grace_s: time between notice and the end by force.
    """

    mode: CheckpointMode = CheckpointMode.NONE
    signal: str = "SIGTERM"
    grace_s: float = 30.0


@dataclass(frozen=True, slots=True)
class FailureRule:
    """Which failures are tried again, by exit code (``75``) or class (``out-of-memory``, an ``Outcome``).

    Attributes:
        retry_on: these alone, as often as the job has retries; empty: by the class of the failure.
        fail_on: these never; goes before everything else.
    """

    retry_on: tuple[str, ...] = ()
    fail_on: tuple[str, ...] = ()

    def retries(self, outcome: Outcome, exit_code: int | None) -> bool:
        """Whether ``retry_on`` names this end."""
        return outcome.value in self.retry_on or str(exit_code) in self.retry_on

    def fails(self, outcome: Outcome, exit_code: int | None) -> bool:
        """Whether ``fail_on`` names this end."""
        return outcome.value in self.fail_on or str(exit_code) in self.fail_on


@dataclass(frozen=True, slots=True)
class RetryDelay:
    """How long a job waits after a failure of its own before it lines up again.

    Attributes:
        first_s: after the first failure.
        factor: each further failure makes it so many times as long.
        longest_s: up to this.
    """

    first_s: float = 0.0
    factor: float = 2.0
    longest_s: float = 3_600.0

    def after(self, failures: int) -> float:
        """Seconds after so many failures, from 1."""
        if self.first_s <= 0.0:
            return 0.0
        steps = min(failures - 1, _MOST_STEPS)
        return min(self.first_s * self.factor**steps, max(self.longest_s, self.first_s))


@dataclass(frozen=True, slots=True)
class Role:
    """Identical tasks of a job.

    Attributes:
        desired: how many tasks should run.
        minimum, maximum: bounds of an elastic role; equal to ``desired`` for a rigid one.
        daemon: its tasks do not keep the job running: they are ended when all others have succeeded.
        failures: which failures of its tasks are tried again; None: as of the job's others.
    """

    request: TaskRequest
    desired: int = 1
    minimum: int = 1
    maximum: int = 1
    name: str = "worker"
    daemon: bool = False
    failures: FailureRule | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.minimum <= self.desired <= self.maximum:
            raise InvalidInputError(
                f"role {self.name!r} wants {self.desired} tasks between {self.minimum} and {self.maximum}",
                "a gang needs 1 <= min <= tasks <= max",
            )

    @staticmethod
    def rigid(request: TaskRequest, count: int, name: str = "worker") -> Role:
        """A role of exactly ``count`` tasks."""
        return Role(request, count, count, count, name)


@dataclass(frozen=True, slots=True)
class Job:
    """A unit of submission: its roles start together or not at all.

    Attributes:
        id: unique for ever; the submitter's or the server's choice.
        together: the level within which all tasks must (or, if not ``together_required``, should) lie.
        retries: how often a failure of the program itself is tried again.
        time_limit_s: end it after this long; also an upper bound for planning.
        minimum_run_s: it is not preempted before it has run this long.
        preemption_budget: how often it may be preempted in its life.
        deadline_s: instant by which it should have ended, for policies that know deadlines.
        flexible_s: so much later than it could it may start, for cheaper or cleaner energy.
        max_slowdown: its steps may take longer by this part, to save energy; 0: by none.
        group: the group of users it belongs to, who may see it; empty when none.
        windows: hours in which it may run, several together; empty means at any hour.
        share_class: who goes first where it shares a device.
        suspendable: how it may leave its cards for others without ending.
        failures: which failures are tried again.
        retry_delay: how long it waits before that.
        rest_preemptible: of an elastic job that is not preemptible, the tasks beyond the minimum may be taken all the
            same, and may be borrowed.
        reservation: name of the advance reservation on whose cards alone it starts, while that is to come or holds.
        only_on: which nodes it may have; empty: any of its pool.
        keep_s: the place of a task with which it fails for good is kept this long for a look inside; 0: it is not.
        spacing: how its tasks must lie towards each other.
        contents: what each node that it runs on needs, and fetches where it is missing.
    """

    id: str
    roles: tuple[Role, ...]
    user: str = ""
    name: str = ""
    queue: str = DEFAULT_QUEUE
    pool: str = DEFAULT_POOL
    kind: Kind = Kind.TRAIN
    priority: Priority = Priority.NORMAL
    together: Level = Level.CLUSTER
    together_required: bool = False
    gang_rule: GangRule = GangRule.ALL
    retries: int = 0
    time_limit_s: float | None = None
    checkpoint: Checkpoint = Checkpoint()
    preemptible: bool = True
    minimum_run_s: float = 0.0
    preemption_budget: int = UNBOUNDED_PREEMPTIONS
    deadline_s: float | None = None
    flexible_s: float = 0.0
    max_slowdown: float = 0.0
    group: str = ""
    windows: tuple[Window, ...] = ()
    share_class: ShareClass = ShareClass.NORMAL
    suspendable: Suspendable = Suspendable.AUTO
    failures: FailureRule = FailureRule()
    retry_delay: RetryDelay = RetryDelay()
    keep_s: float = 0.0
    rest_preemptible: bool = False
    reservation: str = ""
    only_on: NodeSelection = ()
    spacing: tuple[SpacingRule, ...] = ()
    contents: tuple[Content, ...] = ()

    def __post_init__(self) -> None:
        if not self.id or len(self.id) > LONGEST_JOB_ID:
            raise InvalidInputError(f"a job id of {len(self.id)} characters", f"use 1 to {LONGEST_JOB_ID}")
        if not self.roles:
            raise InvalidInputError(f"job {self.id!r} has no roles", "give it at least one role with one task")
        if all(role.daemon for role in self.roles):
            raise InvalidInputError(f"all roles of job {self.id!r} are daemons", "say which role does the work")
        if self.retries < 0:
            raise InvalidInputError(f"job {self.id!r} has {self.retries} retries", "use zero or more")
        if self.together_required and self.together > Level.ZONE:
            raise InvalidInputError(
                f"job {self.id!r} must lie together, anywhere in the cluster", "name a zone, a rack or a node"
            )
        if self.rest_preemptible and self.preemptible:
            raise InvalidInputError(
                f"job {self.id!r} is preemptible as a whole, and beyond its minimum alone", "say one of the two"
            )
        is_protected = not self.preemptible or self.minimum_run_s > 0 or self.preemption_budget < UNBOUNDED_PREEMPTIONS
        if self.is_background and is_protected:
            raise InvalidInputError(
                f"job {self.id!r} is background work, and protected from preemption",
                "leave the protection out, or use priority low",
            )

    def failure_rule(self, role_index: int) -> FailureRule:
        """Which failures of a role's tasks are tried again."""
        own = self.roles[role_index].failures
        return self.failures if own is None else own

    @property
    def is_background(self) -> bool:
        """Whether it runs outside every quota, on what is idle."""
        return self.priority is Priority.BACKGROUND

    @property
    def charged_queue(self) -> str:
        """The queue that it stands in, and that its usage counts for; all background work has one of its own."""
        return BACKGROUND_QUEUE if self.is_background else self.queue

    @property
    def task_count(self) -> int:
        """Tasks it wants in all."""
        return sum(role.desired for role in self.roles)

    @property
    def gpu_milli(self) -> int:
        """Guaranteed compute it wants in all."""
        return sum(role.desired * role.request.gpu_milli for role in self.roles)

    @property
    def elastic(self) -> bool:
        """Whether it can run with fewer or more tasks than it wants."""
        return any(role.minimum != role.maximum for role in self.roles)

    @property
    def may_freeze(self) -> bool:
        """Whether it may be halted where it is for others."""
        return self.suspendable is Suspendable.FREEZE or self.may_swap

    @property
    def may_swap(self) -> bool:
        """Whether its device memory may be moved to host memory for others."""
        if self.suspendable is Suspendable.AUTO:
            return self.checkpoint.mode is CheckpointMode.TRANSPARENT or self.task_count == 1
        return self.suspendable is Suspendable.SWAP
