"""The bodies of the REST API about advance reservations; instants are seconds since 1970."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Final

from pydantic import Field

from millpond.model.hardware.nodes import DEFAULT_POOL
from millpond.specs.api.base import LATEST
from millpond.specs.api.models import RequestBody
from millpond.specs.job.fields import Name

MOST_CARDS: Final = 1_000_000
_Instant = Annotated[float, Field(ge=0, le=LATEST, strict=True)]


class ReserveRequest(RequestBody):
    """Cards for the jobs of a queue, from one instant to another.

    Attributes:
        begin: when it begins; left out: now.
        models: the card models that they may be; empty: any.
        whole_nodes: they are whole nodes.
        beyond_guarantee: they may go beyond what the queue is guaranteed, into what no queue is; for admins.
    """

    queue: Name
    cards: Annotated[int, Field(ge=1, le=MOST_CARDS, strict=True)]
    begin: _Instant | None = None
    until: _Instant
    pool: Name = DEFAULT_POOL
    models: Annotated[tuple[Annotated[str, Field(min_length=1, max_length=200)], ...], Field(max_length=100)] = ()
    whole_nodes: bool = False
    beyond_guarantee: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationInfo:
    """An advance reservation that is not over.

    Attributes:
        state: ``agreed`` (its nodes are not chosen yet), ``placed`` (they are) or ``active`` (it has begun).
        nodes: how many cards are kept on which node.
        unused_gpu_milli: of these, while it is active, what no job has taken.
        jobs: ids of those that have.
        by: who made it.
    """

    name: str
    queue: str
    pool: str
    cards: int
    begin: float
    until: float
    state: str
    models: list[str] = field(default_factory=list)
    whole_nodes: bool = False
    beyond_guarantee: bool = False
    nodes: dict[str, int] = field(default_factory=dict)
    unused_gpu_milli: int = 0
    jobs: list[str] = field(default_factory=list)
    by: str = ""

    @property
    def missing(self) -> int:
        """Cards that were agreed upon and cannot be had now; 0 before its nodes are chosen."""
        return self.cards - sum(self.nodes.values()) if self.state != "agreed" else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationList:
    """Reservations, the first to begin first."""

    reservations: list[ReservationInfo] = field(default_factory=list)
