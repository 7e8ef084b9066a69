"""Routes about webhooks: which there are, adding, trying and removing them, and what was delivered."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import Path, Query

from millpond.server.api.description import api_router
from millpond.server.api.permits import Access, ClusterKeeper, ServiceOf, may
from millpond.server.auth.roles import AccessTarget, Verb
from millpond.specs.api.events import DeliveryInfo, DeliveryList
from millpond.specs.api.webhooks import NewWebhookRequest, WebhookInfo, WebhookList

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
    return DeliveryList(deliveries=await asyncio.to_thread(service.deliveries.latest, limit))


@router.get("/deliveries/{delivery}")
async def delivery(delivery: DeliveryNumber, service: ServiceOf, access: DeliveryReader) -> DeliveryInfo:
    """One of them, and what came of it so far."""
    return await asyncio.to_thread(service.deliveries.find, delivery)


@router.get("")
async def list_webhooks(service: ServiceOf, access: DeliveryReader) -> WebhookList:
    """The webhooks of the configuration and those that were added since; addresses end at their hosts."""
    return WebhookList(webhooks=service.webhooks.all())


@router.post("", status_code=201)
async def add_webhook(body: NewWebhookRequest, service: ServiceOf, access: ClusterKeeper) -> WebhookInfo:
    """Have another program notified of what happens to jobs."""
    access.act.target = AccessTarget("webhook", body.name)
    queues = await service.queues.taking_jobs(access.caller)
    info = await asyncio.to_thread(service.webhooks.add, body, queues, access.caller.user)
    access.note(_text(info))
    return info


@router.delete("/{name}")
async def remove_webhook(name: str, service: ServiceOf, access: ClusterKeeper) -> WebhookInfo:
    """Have a webhook that was added notified no more; what waits for it is given up."""
    access.act.target = AccessTarget("webhook", name)
    info = await asyncio.to_thread(service.webhooks.remove, name)
    access.note("removed", _text(info))
    return info


@router.post("/{name}/test", status_code=202)
async def send_test(name: str, service: ServiceOf, access: ClusterKeeper) -> DeliveryInfo:
    """Send a test message to a webhook, once; its delivery says what comes of it."""
    access.note("a test message", target=AccessTarget("webhook", name))
    return await asyncio.to_thread(service.deliveries.try_webhook, name, access.caller)


def _text(info: WebhookInfo) -> str:
    """A webhook in short, without what opens anything."""
    of = f" of {', '.join(info.queues)}" if info.queues else ""
    return f"{info.format} to {info.url}: {', '.join(info.on)}{of}"
