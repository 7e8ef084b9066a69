"""The page at a glance: what is free, the pool as a map, what starts next, what is held unused, the queues."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from fastapi import APIRouter, Response

from millpond.server.api.permits import ClusterReader, SecurityOf, ServiceOf
from millpond.server.auth.roles import Verb, job_target
from millpond.server.monitoring.time_series.figures import Subject
from millpond.server.views.visibility import reader_of
from millpond.server.web.charts import history_pages
from millpond.server.web.pages import PageRoute, VisitOf, may_do
from millpond.server.web.pool.pool_map import Colouring, map_of
from millpond.server.web.rendering import show
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.api.pool.queues import QueueInfo

_NEXT_WITHIN_S: Final = 0.3
"""For what starts next a page waits no longer: it is shown when it is known."""
_QUEUES_SHOWN: Final = 30

router = APIRouter(prefix="/portal", include_in_schema=False, route_class=PageRoute)


@router.get("/")
async def overview(
    service: ServiceOf,
    security: SecurityOf,
    access: ClusterReader,
    visit: VisitOf,
    colour: Colouring = Colouring.USE,
) -> Response:
    """The pool at a glance, and the groups into which the reader is invited."""
    caller, reader = access.caller, reader_of(access.caller)
    invitations = security.invitations.of_user(caller.user) if may_do(caller, Verb.CHANGE_SELF) else []
    nodes = await service.machines.all(reader)
    info = await service.overview.of(nodes, reader, _NEXT_WITHIN_S)

    def find(job: str) -> JobInfo | None:
        found = service.lookup.live(job)
        return found if found is not None and reader.sees(found) else None

    suspendable = {
        idle.job
        for idle in info.idle
        if (found := find(idle.job)) is not None and may_do(caller, Verb.CHANGE_JOBS, job_target(found))
    }
    queues = await service.queues.seen_by(caller)

    def drawn() -> Response:
        drawing = map_of(nodes, colour, find)
        now = time.time()
        return show(
            "pool/overview.html",
            visit,
            info=info,
            invitations=invitations,
            map=drawing,
            queues=busiest(queues),
            queues_in_all=sum(each.takes_jobs for each in queues),
            suspendable=suspendable,
            now=now,
            history=history_pages.series_of(service, Subject.MODELS, None, None, None),
            pool_chart=history_pages.pool_chart,
        )

    return await asyncio.to_thread(drawn)  # of thousands of machines: other requests go on meanwhile


def busiest(queues: Sequence[QueueInfo]) -> list[QueueInfo]:
    """The queues that take jobs, in their order; where there are many, those alone that hold and want most cards."""
    leaves = [each for each in queues if each.takes_jobs]
    first = sorted(leaves, key=lambda each: (-(each.gpu_milli + each.waiting_gpu_milli), -each.running - each.waiting))
    chosen = {each.name for each in first[:_QUEUES_SHOWN]}
    return [each for each in leaves if each.name in chosen]
