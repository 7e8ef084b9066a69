"""Bodies about why jobs wait or run, what would help, and what would become of a job."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from millpond.specs.api.jobs.jobs import DeadlineInfo

InTheWay = Literal["job", "queue", "node"]
_IN_THE_WAY: Final[dict[str, InTheWay]] = {
    **dict.fromkeys(("nodes-closed", "nodes-off", "card-being-divided"), "node"),
    **dict.fromkeys(("queue-limit", "user-limit", "guarantee-of-others", "lending-over"), "queue"),
}
"""What stands in the way, by cause; another job for all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemedyInfo:
    """The smallest change found that would start a job now.

    Attributes:
        field, value: for programs: a field of the job file and its new value.
    """

    change: str
    field: str = ""
    value: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartInfo:
    """When a waiting job should start.

    Attributes:
        latest_at: None without a bound.
        basis: what this rests on.
        likely_at: as likely before as behind the start; None when not known.
        unknown: why nothing can be said of it, and then the rest says nothing; empty when it can.
    """

    earliest_at: float
    latest_at: float | None = None
    basis: str = ""
    likely_at: float | None = None
    unknown: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitInfo:
    """A span in which a job waited for one reason.

    Attributes:
        summary: with the numbers of its beginning.
        since: when that was first seen; of the first reason, when the job came to wait.
        started: it started at the end of the span.
        start: when it should have started, as estimated at its beginning; null where that was not known.
    """

    cause: str
    summary: str
    since: float
    until: float
    started: bool = False
    start: StartInfo | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonInfo:
    """Why a job waits or runs.

    Attributes:
        cause: one word, a ``model.reasons.Cause``.
        numbers: the numbers of the summary by name.
        nodes: how many nodes fail first on which filter (``fits``: on none), most frequent first.
        position: place among those that wait, from 1.
        opens_at: when the closed nodes in the way are open again; None: unknown, or none is.
        waits: of a job that has started or ended: why it waited, the first reason first.
    """

    job: str
    state: str
    cause: str
    summary: str
    numbers: dict[str, int] = field(default_factory=dict)
    nodes: dict[str, int] = field(default_factory=dict)
    position: int | None = None
    remedy: RemedyInfo | None = None
    start: StartInfo | None = None
    blocked_by: str = ""
    opens_at: float | None = None
    waits: list[WaitInfo] = field(default_factory=list)

    @property
    def in_the_way(self) -> InTheWay:
        """What ``blocked_by`` names."""
        return _IN_THE_WAY.get(self.cause, "job")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTask:
    """Where a task would run; ``devices`` are UUIDs, of which it would have ``gpu_milli`` together."""

    task: int
    role: str
    node: str
    devices: list[str] = field(default_factory=list)
    gpu_milli: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedVictim:
    """A job that would make room. ``how`` is ``preempt`` or ``suspend``, ``cause`` a ``model.reasons.Cause``."""

    job: str
    user: str
    how: str
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaInfo:
    """A queue's cards before and after; ``limit_gpu_milli`` is None without a limit."""

    queue: str
    gpu_milli_now: int
    gpu_milli_after: int
    limit_gpu_milli: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInfo:
    """What would become of a job if it were submitted now.

    Attributes:
        tasks: where it would run, when it starts now.
        victims: who would have to leave first; then it starts when they have left.
        reason: why it would wait, when it does not start now.
        borrowed_gpu_milli: how much of it would run beyond what its queue is guaranteed.
        unenforced: why nothing would keep it to its parts of cards there; empty where something does, or it has whole
            cards.
        unlimited: why nothing would keep all its processes together to the memory that it asks for; empty where
            something does, or it names none.
        deadline: whether it should end by its deadline; None: it has none.
    """

    starts_now: bool
    tasks: list[PlannedTask] = field(default_factory=list)
    victims: list[PlannedVictim] = field(default_factory=list)
    reason: ReasonInfo | None = None
    borrowed_gpu_milli: int = 0
    unenforced: str = ""
    unlimited: str = ""
    deadline: DeadlineInfo | None = None
    quota: QuotaInfo
