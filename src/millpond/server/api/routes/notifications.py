"""Routes about what one is told of, by mail and by chat; all of them are about oneself alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, TypeVar

from millpond.server.api.description import api_router
from millpond.server.api.permits import Access, ServiceOf, may
from millpond.server.auth.roles import AccessTarget, Caller, Verb
from millpond.specs.api.notifications import (
    AddressProof,
    AddressRequest,
    ChatRequest,
    NotificationsInfo,
    NotificationTrial,
    RulesRequest,
)

router = api_router(prefix="/notifications", tags=["account"])

Answer = TypeVar("Answer")
NotificationChanger = Annotated[Access, may(Verb.CHANGE_NOTIFICATIONS)]


@router.get("")
async def show_notifications(
    service: ServiceOf, access: Annotated[Access, may(Verb.READ_NOTIFICATIONS)]
) -> NotificationsInfo:
    """What one is told of, where, and what was sent last."""
    return await asyncio.to_thread(service.notifications.info, access.caller)


@router.put("/rules")
async def choose_events(body: RulesRequest, service: ServiceOf, access: NotificationChanger) -> NotificationsInfo:
    """Choose of what one is told, and how, in place of what was chosen before."""
    return await _changed(
        access, f"{len(body.rules)} events", lambda caller: service.notifications.choose(body, caller)
    )


@router.post("/address")
async def ask_for_code(body: AddressRequest, service: ServiceOf, access: NotificationChanger) -> NotificationsInfo:
    """Have a code sent to a mail address, which confirms it."""
    return await _changed(
        access, f"a code to {body.address}", lambda caller: service.notifications.ask_code(body.address, caller)
    )


@router.post("/address/confirm")
async def confirm_address(body: AddressProof, service: ServiceOf, access: NotificationChanger) -> NotificationsInfo:
    """Confirm the address that the code was sent to: mail goes there from now on."""
    return await _changed(
        access, "an address, by its code", lambda caller: service.notifications.confirm(body.code, caller)
    )


@router.delete("/address")
async def forget_address(service: ServiceOf, access: NotificationChanger) -> NotificationsInfo:
    """Have no mail sent any more."""
    return await _changed(access, "no address", service.notifications.drop_address)


@router.put("/chat")
async def set_chat(body: ChatRequest, service: ServiceOf, access: NotificationChanger) -> NotificationsInfo:
    """Have messages sent to a webhook of one's own; its address is kept as a secret."""
    return await _changed(
        access, f"a webhook, {body.format}", lambda caller: service.notifications.put_chat(body, caller)
    )


@router.delete("/chat")
async def forget_chat(service: ServiceOf, access: NotificationChanger) -> NotificationsInfo:
    """Have no messages sent to one's webhook any more."""
    return await _changed(access, "no webhook", service.notifications.drop_chat)


@router.post("/trial")
async def send_trial(service: ServiceOf, access: NotificationChanger) -> NotificationTrial:
    """Send a test message to wherever one is told."""
    return await _changed(access, "a trial", service.notifications.send_trial)


async def _changed(access: Access, after: str, change: Callable[[Caller], Answer]) -> Answer:
    """Change something about the caller, and note it for the audit log."""
    caller = access.caller
    access.note(after, target=AccessTarget("user", caller.user, caller.user))
    return await asyncio.to_thread(change, caller)
