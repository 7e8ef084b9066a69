"""Bodies that ask something of jobs, services and nodes that are there."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from millpond.model.workloads import LONGEST_JOB_ID
from millpond.specs.api.base import LATEST, LONGEST_REASON, ONE_LINE
from millpond.specs.api.jobs.jobs import MOST_TOGETHER
from millpond.specs.api.models import Body, CanaryPercent, RequestBody
from millpond.specs.job.fields import MOST_TASKS, PriorityName


class ResizeRequest(RequestBody):
    """Another number of tasks for an elastic job.

    Attributes:
        tasks: how many the role should have, within its bounds; 0 for a service that may go without replicas.
        role: which; empty where the job has one only.
    """

    tasks: Annotated[int, Field(ge=0, le=MOST_TASKS, strict=True)]
    role: str = ""


class JobsActRequest(RequestBody):
    """The same for several jobs.

    Attributes:
        jobs: their ids.
        swap: of a suspension: their device memory moves to host memory.
        priority: the class that they get; with ``act: priority`` alone.
    """

    act: Literal["stop", "suspend", "resume", "requeue", "priority"]
    jobs: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=LONGEST_JOB_ID)], ...],
        Field(min_length=1, max_length=MOST_TOGETHER),
    ]
    swap: bool = False
    priority: PriorityName | None = None

    @model_validator(mode="after")
    def _priority_is_named(self) -> Self:
        if (self.act == "priority") != (self.priority is not None):
            raise ValueError("`priority` goes with `act: priority`, and with nothing else")
        return self


class PriorityRequest(RequestBody):
    """Another class of priority for a job."""

    priority: PriorityName


class MigrateRequest(RequestBody):
    """Other cards for a running job.

    Attributes:
        to: names of cards (``NODE/CARD`` or UUIDs), as many as it has, or of one node; empty: wherever there is room.
        restart: it may be ended and started anew there, although it does not save its work on notice.
    """

    to: Annotated[tuple[Annotated[str, Field(min_length=1, max_length=200)], ...], Field(max_length=MOST_TASKS)] = ()
    restart: bool = False


class InputInfo(Body):
    """How far a task's standard input is.

    Attributes:
        received: bytes that were taken so far.
        open: it takes more; not, once it got the end, has closed it, or has ended.
    """

    received: int
    open: bool


class ExtendRequest(RequestBody):
    """More time for a job with a time limit: so many seconds beyond its present limit."""

    by_s: float = Field(gt=0, le=366 * 86_400, allow_inf_nan=False)


class NewQueueRequest(RequestBody):
    """A queue to be defined.

    Attributes:
        fields: as in the configuration, by name; without its name.
        dry_run: it is only said what would come of it.
    """

    name: Annotated[str, Field(min_length=1, max_length=100)]
    fields: dict[str, Any] = Field(default={}, max_length=100)
    dry_run: bool = False


class QueueChangeRequest(RequestBody):
    """Other fields for a queue.

    Attributes:
        fields: as in the configuration, by name; those that are null are left out from now on, others stay.
        version: the version that was seen; the change is refused where the queue has another one by now.
        dry_run: it is only said what would come of it.
    """

    fields: dict[str, Any] = Field(max_length=100)
    version: int | None = None
    dry_run: bool = False


class RevisionRequest(RequestBody):
    """Another job file for a service.

    Attributes:
        canary: percentage of the requests that it gets first; left out: as its file says.
    """

    document: dict[str, Any]
    canary: CanaryPercent | None = None


class RolloutRequest(RequestBody):
    """What is to become of the revision of a service that is on its way; ``undo`` without one goes back by one."""

    act: Literal["pause", "resume", "promote", "undo"]


CardIndex = Annotated[int, Field(ge=0, le=100_000, strict=True)]


class CloseRequest(RequestBody):
    """A machine should take no new work: from now on, or from ``begin`` on.

    Attributes:
        card: its card of this number alone, from now on, until that is opened.
        reason: for people.
        until: when it opens by itself, in seconds since 1970; None: when it is opened.
        drain: preemptible work there is asked to leave when the span begins.
        begin: plans it for then: work that is known to run into it does not start there, and it always drains.
    """

    reason: Annotated[str, Field(max_length=LONGEST_REASON, pattern=ONE_LINE)] = ""
    until: Annotated[float, Field(ge=0, le=LATEST, strict=True)] | None = None
    drain: bool = False
    begin: Annotated[float, Field(ge=0, le=LATEST, strict=True)] | None = None
    card: CardIndex | None = None


class OpenRequest(RequestBody):
    """A machine should take new work again.

    Attributes:
        card: its card of this number alone.
        planned: what is planned for it is given up too.
    """

    planned: bool = False
    card: CardIndex | None = None
