"""Bodies about why jobs wait or run, what would help, and what would become of a job."""

from __future__ import annotations

from pydantic import Field

from millpond.specs.api.base import Body


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
    numbers: dict[str, int] = Field(default={})
    nodes: dict[str, int] = Field(default={})
    position: int | None = None
    remedy: RemedyInfo | None = None
    start: StartInfo | None = None
    blocked_by: str = ""
    opens_at: float | None = None


class PlannedTask(Body):
    """Where a task would run; ``devices`` are UUIDs."""

    task: int
    role: str
    node: str
    devices: list[str] = Field(default=[])


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
        unenforced: why nothing would keep it to its parts of cards there; empty where something does, or it has whole
            cards.
    """

    starts_now: bool
    tasks: list[PlannedTask] = Field(default=[])
    victims: list[PlannedVictim] = Field(default=[])
    reason: ReasonInfo | None = None
    borrowed_gpu_milli: int = 0
    unenforced: str = ""
    quota: QuotaInfo
