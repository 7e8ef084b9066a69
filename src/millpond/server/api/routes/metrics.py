"""The route that a Prometheus reads."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Response

from millpond.server.api.dependencies import ServiceOf
from millpond.server.api.description import REFUSALS
from millpond.server.api.permits import Access, may
from millpond.server.auth.roles import Verb
from millpond.server.monitoring.metrics.exposition import CONTENT_TYPE

router = APIRouter(tags=["health"], responses=REFUSALS)


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(service: ServiceOf, access: Annotated[Access, may(Verb.READ_METRICS)]) -> Response:
    """Figures of the server, all its queues, jobs and devices, in the text format of Prometheus."""
    return Response(await service.scrape.page(), headers={"Content-Type": CONTENT_TYPE})
