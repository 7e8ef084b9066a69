"""Bodies about why jobs wait or run, and what would help."""

from __future__ import annotations

from pydantic import Field

from millpond.specs.api.base import Body


class RemedyInfo(Body):
    """The smallest change found that would start a job now.

    Attributes:
        field, value: for programs: a field of the job file and its new value.
    """

    change: str
    field: str = ""
    value: str = ""


class StartInfo(Body):
    """When a waiting job should start, and what this rests on; ``latest_at`` is None without a bound."""

    earliest_at: float
    latest_at: float | None = None
    basis: str = ""


class ReasonInfo(Body):
    """Why a job waits or runs.

    Attributes:
        cause: one word, a ``model.reasons.Cause``.
        numbers: the numbers of the summary by name.
        nodes: how many nodes fail first on which filter (``fits``: on none), most frequent first.
        position: place among those that wait, from 1.
        opens_at: when the closed nodes in the way are open again; None: unknown, or none is.
    """

    job: str
    state: str
    cause: str
    summary: str
    numbers: dict[str, int] = Field(default={})
    nodes: dict[str, int] = Field(default={})
    position: int | None = None
    remedy: RemedyInfo | None = None
    start: StartInfo | None = None
    blocked_by: str = ""
    opens_at: float | None = None
