"""How jobs that serve something are reached: the ``serve`` field of a job file and the paths of the proxy."""

from __future__ import annotations

from typing import Annotated, Final, Literal
from urllib.parse import quote

from pydantic import Field, model_validator

from millpond.specs.errors import BadValueError
from millpond.specs.fields import Duration
from millpond.specs.validation import Strict

SERVING_KINDS: Final = ("dev", "service")
"""Tasks of these jobs get a port to listen on."""
PROXY_PREFIX: Final = "/proxy/"

OPEN_PATH: Final = "/open"
"""Where links lead that work once and sign a browser in to one job."""


def base_path(job: str) -> str:
    """Where the proxy shows a job, with a slash at both ends."""
    return f"{PROXY_PREFIX}{quote(job, safe='')}/"


class Scale(Strict):
    """Targets by which a service gets more or fewer replicas, between ``min`` and ``max`` of its ``tasks``.

    Attributes:
        requests_per_s: that one replica should get.
        open_requests: that one replica should have at a time.
        latency: mean time of an answer, above which there are too few replicas.
        down_after: so long fewer must have been enough before there are fewer.
    """

    requests_per_s: Annotated[float, Field(gt=0, le=1e6)] | None = None
    open_requests: Annotated[float, Field(gt=0, le=1e6)] | None = None
    latency: Annotated[Duration, Field(gt=0)] | None = None
    down_after: Annotated[Duration, Field(ge=0, le=86_400)] = 300.0

    @model_validator(mode="after")
    def _some_target(self) -> Scale:
        if self.requests_per_s is None and self.open_requests is None and self.latency is None:
            raise BadValueError("a scale without a target", "name requests_per_s, open_requests or latency")
        return self


class Serve(Strict):
    """How the program behind a job's port is reached through the proxy.

    Attributes:
        path: what the program sees of ``/proxy/JOB/x``: ``/x`` (``rest``) or all of it (``whole``), for programs that
            were told their base path.
        ready: path below ``/proxy/JOB`` that answers with success once the program can serve; left out: it can as soon
            as its port takes connections.
        scale: when a service gets more or fewer replicas.
    """

    path: Literal["rest", "whole"] = "rest"
    scale: Scale | None = None
    ready: Annotated[str, Field(pattern=r"^/[!-~]{0,500}$")] | None = None
