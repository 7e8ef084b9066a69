"""Bodies that ask something of a service."""

from __future__ import annotations

from typing import Any, Literal

from millpond.specs.api.models import Body, CanaryPercent


class RevisionRequest(Body):
    """Another job file for a service.

    Attributes:
        canary: percentage of the requests that it gets first; left out: as its file says.
    """

    document: dict[str, Any]
    canary: CanaryPercent | None = None


class RolloutRequest(Body):
    """What is to become of the revision of a service that is on its way; ``undo`` without one goes back by one."""

    act: Literal["pause", "resume", "promote", "undo"]
