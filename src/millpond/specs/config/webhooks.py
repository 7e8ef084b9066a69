"""The section ``webhooks`` of the configuration: receivers of events about jobs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal, get_args

from pydantic import Field, model_validator

from millpond.specs.errors import BadValueError
from millpond.specs.job.fields import Name, SecretName
from millpond.specs.validation import Strict

Topic = Literal["job.started", "job.preempted", "job.suspended", "job.succeeded", "job.failed", "job.cancelled"]
"""Events that a webhook can receive."""
ChatFormat = Literal["millpond", "slack", "feishu", "wecom"]
"""Of a webhook's body: Millpond's own, or what a chat service expects."""


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
    url: Annotated[str, Field(pattern=r"^https?://[^\s]+$", max_length=2_000)]
    on: list[Topic] = Field(default=list(get_args(Topic)), min_length=1)
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
