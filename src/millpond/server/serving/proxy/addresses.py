"""The job that a request is for: by its path below this server, or by a host name of the job's own.

Addresses stay: ``/proxy/NAME/`` leads to the living job of that name, whatever its id is this time.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from starlette.types import Scope

from millpond.model.errors import MillpondError, NotFoundError
from millpond.server.auth.roles import Caller, allows, demand, program_permission
from millpond.server.http.origins import job_addressed
from millpond.server.runtime.active_jobs.job_lookup import JobLookup
from millpond.server.serving.front import Routes
from millpond.server.serving.proxy.requests import request_target
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.job.job_ids import service_of
from millpond.specs.job.serving import PROXY_PREFIX, SERVING_KINDS, base_path

_NAMED_IN_DOUBT = 4


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


class AmbiguousNameError(MillpondError):
    """Several jobs have the name that a request is for."""


async def job_meant(written: str, caller: Caller, lookup: JobLookup, routes: Routes) -> str:
    """The job that a caller may open and that is meant by an id, or by a name.

    An id comes first. Of several living jobs of a name the caller's own counts; revisions of one service are one.

    Raises:
        NotFoundError, NotAllowedError: there is none for them.
        AmbiguousNameError: there are several.
    """
    try:
        info = await lookup.soon(routes.present(written))
    except NotFoundError:
        named = _named(unicodedata.normalize("NFC", written), caller, lookup) if written else []
        if not named:
            raise
        info, written = named[0], service_of(named[0].id)
        _require_one(named)
    demand(caller, *program_permission(info))
    return written


def _named(name: str, caller: Caller, lookup: JobLookup) -> list[JobInfo]:
    """The living jobs of this name that the caller may open: their own, else those of others."""
    found = [
        info
        for info in lookup.live_named(name)
        if info.kind in SERVING_KINDS and allows(caller, *program_permission(info))
    ]
    return [info for info in found if info.user == caller.user] or found


def _require_one(named: Sequence[JobInfo]) -> None:
    addresses = sorted({service_of(info.id) for info in named})
    if len(addresses) > 1:
        some = ", ".join(addresses[:_NAMED_IN_DOUBT])
        cause = f"{len(addresses)} jobs are called {named[0].name!r} ({some})"
        raise AmbiguousNameError(cause, "use the id of one of them")
