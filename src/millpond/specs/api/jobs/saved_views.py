"""The bodies of the REST API about lists of jobs that people have named."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from millpond.specs.api.base import ONE_LINE
from millpond.specs.api.models import RequestBody


class SavedViewRequest(RequestBody):
    """A list of jobs to be kept under a name, in place of that of the same owner and name.

    Attributes:
        query: what stands behind the question mark of such a list: ``state=queued&queue=vision``.
        group: whose it is; empty: one's own.
    """

    name: Annotated[str, Field(min_length=1, max_length=100, pattern=ONE_LINE)]
    query: Annotated[str, Field(max_length=2_000)] = ""
    group: Annotated[str, Field(max_length=64)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedViewInfo:
    """A list of jobs that has a name.

    Attributes:
        user, group: whose it is; the other of the two is empty.
        query: its filters, each of them one that lists of jobs have.
        by, at: who saved it last, and when.
    """

    id: str
    name: str
    query: str
    user: str = ""
    group: str = ""
    by: str = ""
    at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedViewList:
    """One's own, and those of one's groups, by name."""

    views: list[SavedViewInfo] = field(default_factory=list)
