"""The page where people choose what they are told of by mail and by chat, and where."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Response

from millpond.server.api.permits import Access, ServiceOf, may
from millpond.server.auth.roles import Verb
from millpond.server.web.pages import PageRoute, VisitOf, may_do
from millpond.server.web.rendering import show
from millpond.specs.api.notifications import SPANS_S, NotificationRule, Topic

router = APIRouter(prefix="/portal", include_in_schema=False, route_class=PageRoute)


@dataclass(frozen=True, slots=True)
class EventChoice:
    """An event with how one is told of it; ``span_min`` is None where it has no span."""

    topic: Topic
    channels: frozenset[str]
    span_min: float | None


@router.get("/notifications")
async def notifications(
    service: ServiceOf, access: Annotated[Access, may(Verb.READ_NOTIFICATIONS)], visit: VisitOf
) -> Response:
    """One's own choice: the events, the address, the webhook, and what was sent last."""
    info = await asyncio.to_thread(service.notifications.info, access.caller, visit.language)
    return show(
        "notifications.html",
        visit,
        info=info,
        choices={queue: _choices(info.rules, queue) for queue in ("", *info.queues)},
        may_change=may_do(access.caller, Verb.CHANGE_NOTIFICATIONS),
    )


def _choices(rules: Sequence[NotificationRule], queue: str) -> list[EventChoice]:
    """All events of one's own, or of a queue that one leads."""
    known = {rule.topic: rule for rule in rules if rule.queue == queue}
    return [_choice(topic, known.get(topic)) for topic in Topic]


def _choice(topic: Topic, rule: NotificationRule | None) -> EventChoice:
    span_s = SPANS_S.get(topic) if rule is None or rule.span_s is None else rule.span_s
    return EventChoice(topic, frozenset(rule.channels if rule else ()), None if span_s is None else span_s / 60)
