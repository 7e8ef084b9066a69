"""The bodies of the REST API about what would become of a job; units and instants as in ``specs.api.base``."""

from __future__ import annotations

from pydantic import Field

from millpond.specs.api.base import Body
from millpond.specs.api.reasons import ReasonInfo


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
