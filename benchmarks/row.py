"""Measured figures beside their targets, as most benchmarks print them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.reporting import Table, verdict


@dataclass(frozen=True, slots=True)
class Row:
    """One measured figure.

    Attributes:
        target: what it should reach, None where it only explains others.
        least: whether the target is a lower bound.
    """

    what: str
    value: float
    unit: str
    target: float | None = None
    least: bool = False

    @property
    def met(self) -> bool | None:
        """Whether it reaches its target."""
        if self.target is None:
            return None
        return self.value >= self.target if self.least else self.value <= self.target

    @property
    def plain(self) -> dict[str, Any]:
        """The row as JSON, with whether it was met."""
        return asdict(self) | {"met": self.met}


def table_of(rows: Iterable[Row]) -> Table:
    """Rows as people read them."""
    table = Table("what", "value", "unit", "target", "met", texts=1)
    for row in rows:
        bound = "" if row.target is None else f"{'>=' if row.least else '<='} {row.target:.4g}"
        table.add(row.what, f"{row.value:.4g}", row.unit, bound, verdict(row.met))
    return table
