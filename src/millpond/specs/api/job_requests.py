"""Bodies about jobs: what is asked of one that is there."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from millpond.specs.api.models import Body
from millpond.specs.job.fields import MOST_TASKS


class ResizeRequest(Body):
    """Another number of tasks for an elastic job.

    Attributes:
        tasks: how many the role should have, within its bounds; 0 for a service that may go without replicas.
        role: which; empty where the job has one only.
    """

    tasks: Annotated[int, Field(ge=0, le=MOST_TASKS, strict=True)]
    role: str = ""


class MigrateRequest(Body):
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


class ExtendRequest(Body):
    """More time for a job with a time limit: so many seconds beyond its present limit."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    by_s: float = Field(gt=0, le=366 * 86_400, allow_inf_nan=False)
