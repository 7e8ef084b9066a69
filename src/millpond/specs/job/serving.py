"""How jobs that serve something are reached: the ``serve`` field of a job file and the paths of the proxy."""

from __future__ import annotations

from typing import Annotated, Final, Literal
from urllib.parse import quote

from pydantic import Field, model_validator

from millpond.model.windows import is_open
from millpond.specs.api.models import CanaryPercent
from millpond.specs.errors import BadValueError
from millpond.specs.job.fields import MOST_TASKS, Compute, Duration, Tasks
from millpond.specs.job.job_ids import service_of
from millpond.specs.job.windows import Windows, model_of
from millpond.specs.validation import URL_PATH, Strict

SERVING_KINDS: Final = ("dev", "service")
"""Tasks of these jobs get a port to listen on."""
PROXY_PREFIX: Final = "/proxy/"


OPEN_PATH: Final = "/open"
"""Where links lead that work once and sign a browser in to one job."""
ORIGIN_OPEN_PATH: Final = "/.millpond/open"
"""The same at the origin of a job, where all other paths are its program's."""


def base_path(job: str) -> str:
    """Where the proxy shows a job, with a slash at both ends."""
    return f"{PROXY_PREFIX}{quote(job, safe='')}/"


class ReplicaHours(Strict):
    """Other bounds for the number of replicas in some hours.

    Attributes:
        window: the hours.
        min, max: instead of those of ``tasks``, and within them; left out: as there.
    """

    window: Windows
    min: Annotated[int, Field(ge=0, le=MOST_TASKS)] | None = None
    max: Annotated[int, Field(ge=1, le=MOST_TASKS)] | None = None


class Scale(Strict):
    """Targets by which a service gets more or fewer replicas, between ``min`` and ``max`` of its ``tasks``.

    Attributes:
        requests_per_s: that one replica should get.
        open_requests: that one replica should have at a time.
        latency: mean time of an answer, above which there are too few replicas.
        device_use: mean part of the time in which the cards of its replicas should be computing, in milli.
        down_after: so long fewer must have been enough before there are fewer.
        ahead: how long a replica takes until it is ready; left out: replicas start when there is load for them. Else
            so long before that, where the load of the weeks before tells it; it takes a history of 8 days.
        idle_after: a service with ``min: 0`` has no replicas after this long without a request.
        rest: what becomes of them then: they end, or they move to host memory where the pool suspends and there is room
            for them, and come back with the next request.
        hours: of several that come together, the first counts.
    """

    requests_per_s: Annotated[float, Field(gt=0, le=1e6)] | None = None
    open_requests: Annotated[float, Field(gt=0, le=1e6)] | None = None
    latency: Annotated[Duration, Field(gt=0)] | None = None
    device_use: Annotated[Compute, Field(gt=0)] | None = None
    down_after: Annotated[Duration, Field(ge=0, le=86_400)] = 300.0
    ahead: Annotated[Duration, Field(ge=1, le=86_400)] | None = None
    idle_after: Annotated[Duration, Field(gt=0, le=30 * 86_400)] = 300.0
    rest: Literal["stop", "swap"] = "stop"
    hours: Annotated[list[ReplicaHours], Field(max_length=20)] = Field(default=[])

    @model_validator(mode="after")
    def _some_target(self) -> Scale:
        if not self.has_target and not self.hours and "idle_after" not in self.model_fields_set:
            hint = "name requests_per_s, open_requests, latency or device_use"
            raise BadValueError("a scale without a target", hint)
        return self

    @property
    def has_target(self) -> bool:
        """Whether anything but idleness changes the number of replicas."""
        targets = (self.requests_per_s, self.open_requests, self.latency, self.device_use)
        return any(target is not None for target in targets)

    def bounds(self, tasks: Tasks, instant: float) -> tuple[int, int]:
        """The fewest and the most replicas at an instant (seconds since 1970)."""
        now = next((each for each in self.hours if is_open(model_of(each.window), instant)), None)
        fewest = tasks.min if now is None or now.min is None else now.min
        return fewest, tasks.max if now is None or now.max is None else now.max


class RequestHold(Strict):
    """What becomes of requests while no replica is ready: they wait in the proxy, which reads no more of their bodies.

    Attributes:
        requests: so many may wait at a time; further ones are turned away.
        longest: so long each may wait.
    """

    requests: Annotated[int, Field(ge=1, le=10_000)] = 100
    longest: Annotated[Duration, Field(gt=0, le=3_600)] = 120.0


class Rollout(Strict):
    """How a new revision of a service takes the place of the present one.

    Attributes:
        max_surge: so many replicas more than wanted may be there meanwhile.
        max_unavailable: so many of those wanted may be missing meanwhile.
        deadline: so long no further replica of the new revision may have become ready before it is withdrawn.
        canary: percentage of the requests that the new revision gets first, until it is promoted; left out: none.
    """

    max_surge: Annotated[int, Field(ge=0, le=1_000)] = 1
    max_unavailable: Annotated[int, Field(ge=0, le=1_000)] = 0
    deadline: Annotated[Duration, Field(gt=0, le=86_400)] = 600.0
    canary: CanaryPercent | None = None

    @model_validator(mode="after")
    def _can_move(self) -> Rollout:
        if not self.max_surge and not self.max_unavailable:
            raise BadValueError("neither one more nor one fewer replica is allowed", "use max_surge: 1")
        return self


class Serve(Strict):
    """How the program behind a job's port is reached through the proxy.

    Attributes:
        path: what the program sees of ``/proxy/JOB/x``: ``/x`` (``rest``) or all of it (``whole``), for programs that
            get their base path.
        ready: path below ``/proxy/JOB`` that answers with success once the program can serve; left out: it can as soon
            as it takes connections.
        listen: where the program listens: on a port of the network that the job is in; on one, in a private network
            (``private``); or on a Unix socket (``socket``).
        scale: when a service gets more or fewer replicas.
        hold: requests wait while no replica is ready; left out: they do for a service with ``min: 0`` only.
        rollout: how another revision takes its place.
        drain: a replica that is one too many gets so long to answer what it was asked before it is ended.
    """

    path: Literal["rest", "whole"] = "rest"
    listen: Literal["port", "private", "socket"] = "port"
    scale: Scale | None = None
    hold: RequestHold | None = None
    drain: Annotated[Duration, Field(ge=0, le=3_600)] = 30.0
    rollout: Rollout = Rollout()
    ready: Annotated[str, Field(pattern=URL_PATH)] | None = None

    def ready_path(self, job: str) -> str | None:
        """Where the program of a job says that it can serve, as the program sees it; None: it need not say."""
        base = base_path(service_of(job)).rstrip("/") if self.path == "whole" else ""
        return None if self.ready is None else base + self.ready
