"""The bodies of the REST API about webhooks: those of the configuration, and those that were added since."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from millpond.specs.api.models import RequestBody


class NewWebhookRequest(RequestBody):
    """A webhook to be added, in the fields of the configuration.

    Attributes:
        url: who knows it can write there; it is kept as a secret.
        on: what it is notified of; empty: of everything.
        queues: only of jobs of these; empty: of all.
        secret: name of the server's secret that deliveries are signed with; empty: they are not.
    """

    name: Annotated[str, Field(max_length=200)]
    url: Annotated[str, Field(max_length=4_000)]
    format: Annotated[str, Field(max_length=100)] = "millpond"
    on: list[Annotated[str, Field(max_length=100)]] = Field(default=[], max_length=100)
    queues: list[Annotated[str, Field(max_length=200)]] = Field(default=[], max_length=200)
    secret: Annotated[str, Field(max_length=200)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookInfo:
    """A receiver of what happens to jobs.

    Attributes:
        url: as far as its host.
        on: what it is notified of.
        queues: only of jobs of these; empty: of all.
        signed: whether its deliveries are.
        secret: name of the server's secret that they are signed with; empty: a file has it, or there is none.
        in_file: the configuration names it, and it is changed there alone.
        by, at: who added it, and when; empty and 0 for one of the configuration.
    """

    name: str
    url: str
    format: str
    on: list[str]
    queues: list[str] = field(default_factory=list)
    signed: bool = False
    secret: str = ""
    in_file: bool = False
    by: str = ""
    at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookList:
    """Those of the configuration in its order, then the others by name."""

    webhooks: list[WebhookInfo] = field(default_factory=list)
