"""Addresses that stay: ``/proxy/NAME/`` leads to the living job of that name, whatever its id is this time."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from millpond.model.errors import MillpondError, NotFoundError
from millpond.server.auth.job_access import entrance
from millpond.server.auth.roles import Caller, allows, demand
from millpond.server.jobs.listing import JobListing
from millpond.server.serving.routing import Routes
from millpond.specs.api.jobs import JobInfo
from millpond.specs.job.job_ids import service_of
from millpond.specs.job.serving import SERVING_KINDS

_NAMED_IN_DOUBT = 4


class AmbiguousNameError(MillpondError):
    """Several jobs have the name that a request is for."""


async def job_meant(written: str, caller: Caller, jobs: JobListing, routes: Routes) -> str:
    """The job that a caller may open and that is meant by an id, or by a name.

    An id comes first. Of several living jobs of a name the caller's own counts; revisions of one service are one.

    Raises:
        NotFoundError, NotAllowedError: there is none for them.
        AmbiguousNameError: there are several.
    """
    try:
        info = await jobs.find(routes.present(written))
    except NotFoundError:
        named = _named(unicodedata.normalize("NFC", written), caller, jobs) if written else []
        if not named:
            raise
        info, written = named[0], service_of(named[0].id)
        _require_one(named)
    demand(caller, *entrance(info))
    return written


def _named(name: str, caller: Caller, jobs: JobListing) -> list[JobInfo]:
    """The living jobs of this name that the caller may open: their own, else those of others."""
    found = [info for info in jobs.live_named(name) if info.kind in SERVING_KINDS and allows(caller, *entrance(info))]
    return [info for info in found if info.user == caller.user] or found


def _require_one(named: Sequence[JobInfo]) -> None:
    addresses = sorted({service_of(info.id) for info in named})
    if len(addresses) > 1:
        some = ", ".join(addresses[:_NAMED_IN_DOUBT])
        cause = f"{len(addresses)} jobs are called {named[0].name!r} ({some})"
        raise AmbiguousNameError(cause, "use the id of one of them")
