"""The bodies of the REST API about services and their revisions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionInfo:
    """One revision of a service.

    Attributes:
        phase: ``rolling``, ``canary``, ``undoing``, ``current``, ``retired`` or ``undone``.
        percent: of the requests, while it is a canary.
        running: replicas that run now.
        target: replicas that it is to have once it has taken over.
        told: why it is where it is; may be empty.
    """

    number: int
    job: str
    user: str
    created_at: float
    phase: str
    paused: bool = False
    percent: float = 0.0
    running: int = 0
    target: int = 0
    told: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingInfo:
    """How many replicas the rule of a service asks for.

    Attributes:
        at: when that was found.
        wanted: so many, between ``fewest`` and ``most``; ``why``, in a clause.
        ahead_s: how long before their load is forecast replicas start; None: the rule asks for no forecast.
        forecast: so many are forecast to be needed by then; None: nothing is forecast, as ``no_forecast`` says.
        by: whose forecast it is.
        coverage: the part of the steps of the last ``tested_days`` in which such a forecast would have been enough.
        skill: what part of the error of the present value it saves: 1 is perfect.
    """

    at: float
    wanted: int
    why: str
    fewest: int
    most: int
    ahead_s: float | None = None
    forecast: int | None = None
    by: str = ""
    coverage: float | None = None
    skill: float | None = None
    tested_days: int = 0
    no_forecast: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceInfo:
    """What stands behind the address of a service, and what was asked of it since the server began.

    Attributes:
        path: where the proxy shows it.
        url: its own origin, if it has one; otherwise empty.
        replicas: tasks that run or are about to.
        ready: those of them that take requests now.
        revisions: the first first; empty when it was never updated.
        open_requests: now, those that wait for a replica included.
        cold_starts: how often a request woke it from having no replicas.
        mean_cold_start_s, longest_cold_start_s: from such a request to the first ready replica.
        scaling: what its rule asks for; None: it has none, or was not looked at yet.
    """

    service: str
    path: str
    url: str = ""
    replicas: int = 0
    ready: int = 0
    revisions: list[RevisionInfo] = field(default_factory=list)
    requests: int = 0
    open_requests: int = 0
    cold_starts: int = 0
    mean_cold_start_s: float = 0.0
    longest_cold_start_s: float = 0.0
    scaling: ScalingInfo | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldChange:
    """A field of a job file that is to have another value; null where it is left out."""

    field: str
    before: Any = None
    after: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionPlan:
    """What another job file would change of a service.

    Attributes:
        replicas: so many the new revision would have, as of now.
    """

    changes: list[FieldChange]
    replicas: int = 1
