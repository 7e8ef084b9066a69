"""The section ``webhooks`` of the configuration: receivers of events about jobs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal, get_args
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, model_validator

from millpond.specs.errors import BadValueError
from millpond.specs.job.fields import Name, SecretName
from millpond.specs.validation import Strict

Topic = Literal["job.started", "job.preempted", "job.suspended", "job.succeeded", "job.failed", "job.cancelled"]
"""Events that a webhook can receive."""
ChatFormat = Literal["millpond", "slack", "feishu", "wecom"]
"""Of a webhook's body: Millpond's own, or what a chat service expects."""
HIDDEN: Final = "(hidden)"


def as_far_as_host(url: str) -> str:
    """An address without what opens anything there."""
    parts = urlsplit(url)
    user, _, host = parts.netloc.rpartition("@")
    has_more = bool(user or parts.path.strip("/") or parts.query or parts.fragment)
    return f"{parts.scheme}://{host}" + (f"/{HIDDEN}" if has_more else "")


def _address(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        parts = urlsplit(value)
        is_one = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_one = False
    if not is_one or not value.isprintable() or " " in value:
        raise BadValueError("no address of a webhook", "write it as https://hooks.example.org/services/T0/B0")
    return value


WebhookAddress = Annotated[
    str, BeforeValidator(_address), Field(min_length=8, max_length=2_000, pattern=r"^https?://[^\s]+$")
]
"""Whoever knows it can write there, so that no message repeats it."""
WebhookTopics = Annotated[list[Topic], Field(min_length=1)]


class WebhookFile(Strict):
    """A receiver of what happens to jobs.

    Attributes:
        name: of the receiver.
        url: that is notified.
        format: of the body: Millpond's own, or what Slack, Feishu or WeCom expect.
        on: what of; default: everything.
        queues: only of jobs of these; default: of all.
        secret: name of the server's secret that deliveries are signed with (``pond secret set --server``).
        secret_file: holds it, instead.
    """

    name: Name
    url: WebhookAddress
    on: WebhookTopics = Field(default=list(get_args(Topic)))
    queues: list[Name] = Field(default=[])
    format: ChatFormat = "millpond"
    secret: SecretName | None = None
    secret_file: Annotated[str, Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _one_secret(self) -> WebhookFile:
        if self.secret is not None and self.secret_file is not None:
            raise BadValueError("both secret and secret_file", "leave one of them out")
        return self


@dataclass(frozen=True, slots=True)
class Webhook:
    """A checked receiver.

    Attributes:
        url: empty: it is kept as a secret.
        queues: empty for all.
        secret_name: of the server's secret that deliveries are signed with; empty: there is none.
        secret: the same from a file; empty: there is none.
    """

    name: str
    url: str
    on: tuple[str, ...]
    queues: tuple[str, ...] = ()
    format: str = "millpond"
    secret: str = field(default="", repr=False)
    secret_name: str = ""
