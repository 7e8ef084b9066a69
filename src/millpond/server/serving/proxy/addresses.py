"""Which job a request is for: by its path below this server, or by a host name of the job's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import unquote

from starlette.types import Scope

from millpond.server.auth.guard import job_addressed
from millpond.server.serving.proxy.requests import request_target
from millpond.specs.job.job_ids import service_of
from millpond.specs.job.serving import PROXY_PREFIX, base_path


@dataclass(frozen=True, slots=True)
class JobAddress:
    """Which job a request is for, and what of it.

    Attributes:
        prefix: where the client sees the program, without a slash at the end.
        below: path and query below that, as written; None when even the slash behind the job is missing.
        holds: returns whether the caller may still use it; a WebSocket lasts.
    """

    job: str
    prefix: str
    below: bytes | None
    holds: Callable[[], bool] = bool

    @staticmethod
    def of(scope: Scope) -> JobAddress:
        """That of a request, at the job's own origin or below ``/proxy/``."""
        job = job_addressed(scope)
        if job is not None:
            return JobAddress._at_origin(job, request_target(scope))
        whole = request_target(scope).removeprefix(PROXY_PREFIX.encode())
        name, slash, _ = whole.partition(b"?")[0].partition(b"/")
        job = unquote(name.decode("latin-1"))
        return JobAddress(job, base_path(job).rstrip("/"), whole[len(name) :] if slash else None)

    @staticmethod
    def _at_origin(job: str, target: bytes) -> JobAddress:
        """At its own origin a program is shown at the root, and where those who know their base path say that it is."""
        known = base_path(service_of(job)).rstrip("/")
        if target.startswith(f"{known}/".encode()):
            return JobAddress(job, known, target[len(known) :])
        return JobAddress(job, "", target)
