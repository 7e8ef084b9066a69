"""How jobs that serve something are reached: the ``serve`` field of a job file and the paths of the proxy."""

from __future__ import annotations

from typing import Annotated, Final, Literal
from urllib.parse import quote

from pydantic import Field

from millpond.specs.validation import Strict

SERVING_KINDS: Final = ("dev", "service")
"""Tasks of these jobs get a port to listen on."""
PROXY_PREFIX: Final = "/proxy/"

OPEN_PATH: Final = "/open"
"""Where links lead that work once and sign a browser in to one job."""


def base_path(job: str) -> str:
    """Where the proxy shows a job, with a slash at both ends."""
    return f"{PROXY_PREFIX}{quote(job, safe='')}/"


class Serve(Strict):
    """How the program behind a job's port is reached through the proxy.

    Attributes:
        path: what the program sees of ``/proxy/JOB/x``: ``/x`` (``rest``) or all of it (``whole``), for programs that
            were told their base path.
        ready: path below ``/proxy/JOB`` that answers with success once the program can serve; left out: it can as soon
            as its port takes connections.
    """

    path: Literal["rest", "whole"] = "rest"
    ready: Annotated[str, Field(pattern=r"^/[!-~]{0,500}$")] | None = None
