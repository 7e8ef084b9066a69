"""Routes about the server itself, its machines and its audit log."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import PlainTextResponse

from millpond.model.workloads import LONGEST_JOB_ID
from millpond.server.api.description import REFUSALS, api_router
from millpond.server.api.permits import (
    Access,
    ClusterKeeper,
    ClusterReader,
    JobLister,
    SecurityOf,
    ServiceOf,
    Word,
    may,
    open_to_all,
)
from millpond.server.auth.roles import AccessTarget, Verb
from millpond.server.http.disconnects import while_connected
from millpond.server.monitoring.telemetry.sampling import KEPT
from millpond.server.store.audit import AuditQuery
from millpond.server.views.hardware.machines import place_name
from millpond.server.views.prometheus.metrics_page import CONTENT_TYPE
from millpond.server.views.reports.history_export import HistorySpan
from millpond.server.views.visibility import reader_of
from millpond.specs.api.accounts.accounts import AuditList
from millpond.specs.api.base import LATEST
from millpond.specs.api.events import EventList
from millpond.specs.api.jobs.requests import CloseRequest, OpenRequest
from millpond.specs.api.pool.nodes import DeviceList, NodeDetail, NodeInfo, NodeList
from millpond.specs.api.pool.overview import OverviewInfo
from millpond.specs.api.reports.history import HistoryPage
from millpond.specs.api.reports.what_if import WhatIfInfo
from millpond.specs.api.reports.what_if_request import WhatIfRequest
from millpond.specs.api.server import AdaptationInfo, HealthInfo, ServerInfo, SettingsInfo

MostEvents = Annotated[int, Query(ge=1, le=10_000, description="How many.")]
MostLooks = Annotated[int, Query(ge=0, le=KEPT, description="How many earlier looks to list of each.")]

health = APIRouter(tags=["health"], responses=REFUSALS)
router = api_router(tags=["cluster"])
audit = api_router(tags=["audit"])


@health.get("/healthz", dependencies=[open_to_all], responses={503: {"model": HealthInfo}})
async def healthz(service: ServiceOf, response: Response) -> HealthInfo:
    """Whether the process is alive: it answers, and its scheduler runs. If not, a new start is all that helps."""
    defect = service.health.dead()
    if defect:
        response.status_code = 503
    return HealthInfo(status=defect or "ok")


@health.get("/readyz", dependencies=[open_to_all], responses={503: {"model": HealthInfo}})
async def readyz(service: ServiceOf, response: Response) -> HealthInfo:
    """Whether requests should come here; if not, why.

    They should while it takes no new work on for want of room, too: only this server can stop jobs and delete what
    fills its disk.
    """
    trouble = await service.health.unready()
    if trouble:
        response.status_code = 503
        return HealthInfo(status=trouble)
    degraded = service.health.degraded()
    return HealthInfo(status="degraded" if degraded else "ready", degraded=degraded)


@router.get("/server")
async def server(service: ServiceOf, access: ClusterReader) -> ServerInfo:
    """The server: version, address, engine, how many jobs."""
    return await service.about.info(access.caller.admin)


@router.get("/settings")
async def settings(service: ServiceOf, access: ClusterKeeper) -> SettingsInfo:
    """The configuration that was read last; secrets are not in it, and addresses end at their hosts."""
    return service.about.settings()


@router.get("/adaptation")
async def adaptation(service: ServiceOf, access: ClusterKeeper) -> AdaptationInfo:
    """Which policies hold, and how the server chose among them by replays of its own past."""
    return await service.about.adaptation()


@health.get("/metrics", response_class=PlainTextResponse)
async def metrics(service: ServiceOf, access: Annotated[Access, may(Verb.READ_METRICS)]) -> Response:
    """Figures of the server, all its queues, jobs and devices, in the text format of Prometheus."""
    return Response(await service.metrics.page(), headers={"Content-Type": CONTENT_TYPE})


@router.get("/nodes")
async def nodes(service: ServiceOf, access: ClusterReader) -> NodeList:
    """All machines, their devices, what is free and who holds the rest."""
    return NodeList(nodes=await service.machines.all(reader_of(access.caller)), spares=service.machines.spares())


@router.get("/nodes/{node}")
async def node_detail(node: str, service: ServiceOf, access: ClusterReader) -> NodeDetail:
    """One machine with the figures of its devices, and how they are joined."""
    return await service.machines.detail(node, reader_of(access.caller))


@router.get("/overview")
async def overview(service: ServiceOf, access: ClusterReader) -> OverviewInfo:
    """The pool at a glance: what is free by model, what starts next and when, what is held without use."""
    reader = reader_of(access.caller)
    return await service.overview.of(await service.machines.all(reader), reader)


@router.get("/devices")
async def devices(service: ServiceOf, access: ClusterReader, history: MostLooks = 0) -> DeviceList:
    """All devices: use, memory, power and temperature, and what each task makes of its part of them."""
    return DeviceList(devices=await service.machines.devices(reader_of(access.caller), history))


@router.post("/nodes/{node}/close")
async def close_node(node: str, body: CloseRequest, service: ServiceOf, access: ClusterKeeper) -> NodeInfo:
    """Let a machine take no new work: from now on, or planned for later; or let one of its cards take none.

    With ``drain`` preemptible work leaves it.
    """
    info = await service.machines.close(node, body, access.caller)
    access.note("drained" if body.drain else "closed", target=AccessTarget("node", place_name(node, body.card)))
    return info


@router.post("/nodes/{node}/open")
async def open_node(node: str, body: OpenRequest, service: ServiceOf, access: ClusterKeeper) -> NodeInfo:
    """Let a machine, or one of its cards, take new work again, before it opens by itself."""
    info = await service.machines.open(node, body, access.caller)
    access.note("opened", target=AccessTarget("node", place_name(node, body.card)))
    return info


@router.delete("/nodes/{node}", status_code=204)
async def forget_node(node: str, service: ServiceOf, access: ClusterKeeper) -> None:
    """Know a machine no more that was switched off and does not come back.

    One that joins all the same is known anew.
    """
    await service.machines.forget(node, access.caller)
    access.note("removed", target=AccessTarget("node", node))


@router.get("/nodes/{node}/events")
async def node_events(node: str, service: ServiceOf, access: ClusterReader, limit: MostEvents = 100) -> EventList:
    """The latest that happened to a machine."""
    return EventList(events=await service.events.of_node(node, limit, reader_of(access.caller)))


@router.get("/events")
async def happenings(
    service: ServiceOf,
    access: ClusterReader,
    after: Annotated[int | None, Query(ge=0, lt=2**62, description="Only what stands behind this ``seq``.")] = None,
    limit: MostEvents = 100,
) -> EventList:
    """What happened to jobs and machines: the latest, or the first behind a place in the log."""
    return EventList(events=await service.events.latest(after, limit, reader_of(access.caller)))


@router.get("/history")
async def history(
    service: ServiceOf,
    access: JobLister,
    since: Annotated[float, Query(ge=0, le=LATEST, description="Seconds since 1970.")] = 0.0,
    until: Annotated[float, Query(ge=0, le=LATEST, description="Seconds since 1970.")] = LATEST,
    after: Annotated[str, Query(max_length=LONGEST_JOB_ID + 40, description="`next` of the answer before.")] = "",
    limit: Annotated[int, Query(ge=1, le=1_000, description="How many jobs at most.")] = 500,
) -> HistoryPage:
    """Jobs that were submitted in a span and have ended, by submission, as rows of a trace that can be replayed."""
    return await service.history.page(HistorySpan(since, until, after, limit), reader_of(access.caller))


@router.post("/what-if")
async def what_if(
    body: WhatIfRequest, request: Request, service: ServiceOf, access: Annotated[Access, may(Verb.ASK_WHAT_IF)]
) -> WhatIfInfo:
    """What changes of queues, nodes, policies and jobs would do to the jobs of this server. Nothing is changed."""
    return await while_connected(request, service.what_if.answer(body, access.caller))


@audit.get("/audit")
def entries(
    access: Annotated[Access, may(Verb.READ_AUDIT)],
    security: SecurityOf,
    by: Word = "",
    since: Annotated[float, Query(ge=0, le=1e12)] = 0.0,
    about: Annotated[Word, Query(alias="object")] = "",
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1_000,
) -> AuditList:
    """Who changed what, and who was refused, the newest first: of all, or of the groups that one leads."""
    caller, accounts = access.caller, security.accounts
    groups = None if caller.admin else [name for name in caller.groups if access.sees(accounts.target_group(name))]
    found = security.audit.find(AuditQuery(by, since, about, groups, limit))
    return AuditList(entries=found)
