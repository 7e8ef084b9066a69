"""The bodies of the REST API about notifications: what users are told of by mail and by chat, and where."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import Field

from millpond.specs.api.base import ONE_LINE
from millpond.specs.api.events import DeliveryInfo
from millpond.specs.api.models import RequestBody
from millpond.specs.config.webhooks import ChatFormat

MOST_RULES: Final = 200
LONGEST_SPAN_S: Final = 30 * 86_400.0


class Topic(StrEnum):
    """What users can be told of."""

    STARTED = "job.started"
    SUCCEEDED = "job.succeeded"
    FAILED = "job.failed"
    CANCELLED = "job.cancelled"
    PREEMPTED = "job.preempted"
    SUSPENDED = "job.suspended"
    WAITING = "job.waiting"
    """It has waited for its first start for longer than a span."""
    IDLE = "job.idle"
    """Its cards have not computed for longer than a span."""
    ENDING = "job.ending"
    """Its time limit, or the rule for idle sessions, ends it within a span."""
    RESERVATION_BEGAN = "reservation.began"
    QUEUE_CHANGED = "queue.changed"


SPANS_S: Final[dict[str, float]] = {Topic.WAITING: 3_600.0, Topic.IDLE: 1_800.0, Topic.ENDING: 600.0}
"""The topics that have a span, with the usual one."""

Channel = Literal["mail", "chat"]


class RuleRequest(RequestBody):
    """What one is told of, and how.

    Attributes:
        channels: none: it is not told.
        span_s: of ``job.waiting`` and ``job.idle``, after how long; of ``job.ending``, how long before; None: the
            usual.
        queue: as its lead: of all its jobs; empty: of one's own jobs, and of the queues of one's groups.
    """

    topic: Topic
    channels: Annotated[list[Channel], Field(max_length=2)]
    span_s: Annotated[float, Field(ge=60, le=LONGEST_SPAN_S)] | None = None
    queue: Annotated[str, Field(max_length=100, pattern=ONE_LINE)] = ""


class RulesRequest(RequestBody):
    """All that one is told of, in place of what it was.

    Attributes:
        language: of what is sent, as a tag; left out: as it was.
    """

    rules: Annotated[list[RuleRequest], Field(max_length=MOST_RULES)]
    language: Annotated[str, Field(max_length=20)] | None = None


class AddressRequest(RequestBody):
    """A mail address to be confirmed by the code that is sent there."""

    address: Annotated[str, Field(min_length=3, max_length=254, pattern=ONE_LINE)]


class AddressProof(RequestBody):
    """The code that was sent."""

    code: Annotated[str, Field(min_length=1, max_length=20)]


class ChatRequest(RequestBody):
    """A webhook of one's own.

    Attributes:
        url: who knows it can write there; it is kept as a secret.
        format: of the body.
    """

    url: Annotated[str, Field(min_length=8, max_length=2_000, pattern=r"^https?://[^\s]+$")]
    format: ChatFormat = "millpond"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationRule:
    """What one is told of, and how; see ``RuleRequest``."""

    topic: str
    channels: list[str]
    span_s: float | None = None
    queue: str = ""

    @property
    def span(self) -> float:
        """How long it takes until the user is told, in seconds."""
        return SPANS_S.get(self.topic, 0.0) if self.span_s is None else self.span_s


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationsInfo:
    """How one is told of what happens.

    Attributes:
        offers: the channels that this server has: ``mail``, ``chat``.
        address: where mail goes; empty: nowhere.
        address_by: how it was confirmed: ``code`` or ``sign-on``.
        pending: an address whose code has not been confirmed yet.
        chat: the format of one's own webhook; empty: there is none.
        chat_origins: to which addresses one's own webhook may lead.
        language: of what is sent.
        queues: those of which one may choose events as a lead.
        deliveries: the latest, newest first.
    """

    user: str
    offers: list[str] = field(default_factory=list)
    address: str = ""
    address_by: str = ""
    pending: str = ""
    chat: str = ""
    chat_origins: list[str] = field(default_factory=list)
    language: str = "en"
    rules: list[NotificationRule] = field(default_factory=list)
    queues: list[str] = field(default_factory=list)
    deliveries: list[DeliveryInfo] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationTrial:
    """What came of a test message.

    Attributes:
        sent: to which channels it went.
        troubles: by channel, why it did not.
    """

    sent: list[str] = field(default_factory=list)
    troubles: dict[str, str] = field(default_factory=dict)
