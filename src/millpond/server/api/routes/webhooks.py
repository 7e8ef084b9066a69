"""Routes about deliveries to webhooks and users, and about test messages to webhooks of the configuration."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import Path, Query

from millpond.server.api.description import api_router
from millpond.server.api.permits import Access, ClusterKeeper, ServiceOf, may
from millpond.server.auth.roles import AccessTarget, Verb
from millpond.specs.api.events import DeliveryInfo, DeliveryList

router = api_router(prefix="/webhooks", tags=["cluster"])

DeliveryNumber = Annotated[int, Path(ge=1, le=2**53)]
DeliveryReader = Annotated[Access, may(Verb.READ_DELIVERIES)]


@router.get("/deliveries")
async def deliveries(
    service: ServiceOf,
    access: DeliveryReader,
    limit: Annotated[int, Query(ge=1, le=1000, description="How many.")] = 100,
) -> DeliveryList:
    """What was or is to be sent to webhooks, and what came of it."""
    return DeliveryList(deliveries=await service.books.deliveries(limit))


@router.get("/deliveries/{delivery}")
async def delivery(delivery: DeliveryNumber, service: ServiceOf, access: DeliveryReader) -> DeliveryInfo:
    """One of them, and what came of it so far."""
    return await asyncio.to_thread(service.webhook_trials.find, delivery)


@router.post("/{name}/test", status_code=202)
async def send_test(name: str, service: ServiceOf, access: ClusterKeeper) -> DeliveryInfo:
    """Send a test message to a webhook of the configuration, once; its delivery says what comes of it."""
    access.note("a test message", target=AccessTarget("webhook", name))
    return await asyncio.to_thread(service.webhook_trials.send, name, access.caller)
