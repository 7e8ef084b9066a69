"""Bodies that ask something of a node."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from millpond.specs.api.base import LATEST, LONGEST_REASON, ONE_LINE
from millpond.specs.api.models import Body


class CloseRequest(Body):
    """A machine should take no new work: from now on, or from ``begin`` on.

    Attributes:
        reason: for people.
        until: when it opens by itself, in seconds since 1970; None: when it is opened.
        drain: preemptible work there is asked to leave when the span begins.
        begin: plans it for then: work that is known to run into it does not start there, and it always drains.
    """

    reason: Annotated[str, Field(max_length=LONGEST_REASON, pattern=ONE_LINE)] = ""
    until: Annotated[float, Field(ge=0, le=LATEST, strict=True)] | None = None
    drain: bool = False
    begin: Annotated[float, Field(ge=0, le=LATEST, strict=True)] | None = None


class OpenRequest(Body):
    """A machine should take new work again.

    Attributes:
        planned: what is planned for it is given up too.
    """

    planned: bool = False
