"""Bodies about events, and their deliveries to webhooks and users."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class EventInfo:
    """One entry of a job's history: something that happened, or something that was decided.

    Attributes:
        seq: rises within one history; in one of the whole server it is the place in the log.
        about: the job or the node that it is about.
        what: the event's or decision's type (``JobSubmitted``, ``Start``).
        decided: true for a decision of the scheduler, false for an event.
        text: one sentence for people.
        data: the record itself.
    """

    seq: int
    at: float
    what: str
    decided: bool
    text: str
    data: dict[str, Any]
    about: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventList:
    """What happened and what was decided, oldest first."""

    events: list[EventInfo]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryInfo:
    """An event that was or is to be delivered to a webhook, or to a user.

    Attributes:
        hook: the webhook's name, or the user's.
        channel: ``webhook``, or of a user ``mail`` or ``chat``.
        state: ``waiting``, ``delivered`` or ``given up``.
        due_at: when it is tried next, while it waits.
        trouble: what went wrong last.
    """

    id: int
    hook: str
    at: float
    text: str
    state: str
    tries: int
    due_at: float
    trouble: str = ""
    channel: str = "webhook"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryList:
    """Deliveries, newest first."""

    deliveries: list[DeliveryInfo]
