"""What commands put together from several answers, or find on their own machine, in the form of the API's bodies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from millpond.specs.api.events import EventInfo
from millpond.specs.api.jobs import JobInfo
from millpond.specs.api.reasons import ReasonInfo
from millpond.specs.api.services import ServiceInfo
from millpond.specs.api.trials import TrialList


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAccount:
    """Everything about one job, as ``pond get`` gathers it.

    Attributes:
        document: the job file that it was submitted with.
        reason: why it waits or runs, or how it ended.
        events: its history, oldest first.
        service: what stands behind its address; null where it is no service.
        trials: of a sweep, the best first.
        last_lines: of what the task wrote that a failed job failed by.
    """

    job: JobInfo
    document: dict[str, Any]
    reason: ReasonInfo
    events: list[EventInfo]
    service: ServiceInfo | None = None
    trials: TrialList | None = None
    last_lines: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateInfo:
    """A ready job file of this machine.

    Attributes:
        own: it is the user's, not Millpond's.
        needs: what must be installed for it.
        source: where it lies.
    """

    name: str
    kind: str
    own: bool
    about: str
    needs: list[str]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateList:
    """All of them by name."""

    templates: list[TemplateInfo]
