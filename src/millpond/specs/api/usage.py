"""The bodies of the REST API about what was used, and what it cost; units and instants as in ``specs.api.base``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Grouping = Literal["user", "queue", "model", "kind", "job"]
"""What usage can be added up by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow:
    """What one group (see ``Grouping``) held of devices of one model.

    Attributes:
        model: empty for work without devices.
        gpu_hours: of whole cards; a quarter card for four hours is one.
        cost: by the price list; None where it has no price for the model.
    """

    name: str
    model: str
    jobs: int
    gpu_hours: float
    cpu_hours: float
    memory_gib_hours: float
    cost: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskInfo:
    """What a user or a group holds on the server's disk: what jobs wrote, with their logs, and datasets.

    Attributes:
        kind: ``user`` or ``group``.
        limit_bytes: what may be held; None without a limit.
    """

    kind: str
    name: str
    used_bytes: int
    limit_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageList:
    """Usage between two instants, the largest first; what is still held counts up to ``until``.

    Attributes:
        currency: of the costs; empty without a price list.
        disk: by user, and by queue for the groups that own them: what is held on the server's disk now.
    """

    by: str
    since: float
    until: float
    currency: str = ""
    rows: list[UsageRow]
    disk: list[DiskInfo] = field(default_factory=list)
