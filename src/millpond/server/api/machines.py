"""Routes about the server itself and its machines."""

from __future__ import annotations

from fastapi import APIRouter, Response

from millpond.server.api.dependencies import ServiceOf
from millpond.specs.api import HealthInfo, NodeList, ServerInfo

health = APIRouter(tags=["health"])
router = APIRouter(tags=["cluster"])


@health.get("/healthz")
async def healthz() -> HealthInfo:
    """Whether the process answers."""
    return HealthInfo(status="ok")


@health.get("/readyz", responses={503: {"model": HealthInfo}})
async def readyz(service: ServiceOf, response: Response) -> HealthInfo:
    """Whether it takes work on; if not, why."""
    trouble = service.unready()
    if trouble:
        response.status_code = 503
    return HealthInfo(status=trouble or "ready")


@router.get("/server")
async def server(service: ServiceOf) -> ServerInfo:
    """The server: version, address, engine, how many jobs."""
    return await service.info()


@router.get("/nodes")
async def nodes(service: ServiceOf) -> NodeList:
    """All machines, their devices, what is free and who holds the rest."""
    return NodeList(nodes=await service.nodes())
