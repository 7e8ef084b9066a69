"""In which order the rows of a report stand: by any of their figures, the largest first, or by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from millpond.specs.api.reports.usage import UsageRow, WaitFigure, WaitRow

NAME: Final = "name"


USAGE_FIGURES: Final = (
    "gpu_hours", "jobs", "busy_percent", "idle_gpu_hours", "unmeasured_gpu_hours", "cpu_hours", "energy_kwh", "co2_kg",
    "energy_cost", "cost",
)  # fmt: skip


WAIT_FIGURES: Final = ("p50", "p95", "jobs", "started", "gave_up", "waiting", "unknown")


_Row = TypeVar("_Row", bound=UsageRow | WaitRow)


def in_order(rows: Sequence[_Row], order: str) -> list[_Row]:
    """The rows in an order; those that are equal stay as they stood, and those without the figure come last.

    Args:
        order: ``NAME`` or a figure, with a minus in front the other way round; empty: as they stand.
    """
    field, is_reversed = order.removeprefix("-"), order.startswith("-")
    if field == NAME:
        return sorted(rows, key=lambda row: row.name.casefold(), reverse=is_reversed)
    if not field:
        return list(rows)
    amounts = [_amount(row, field) for row in rows]
    unknown = [row for row, amount in zip(rows, amounts, strict=True) if amount is None]
    known = [(amount, row) for row, amount in zip(rows, amounts, strict=True) if amount is not None]
    return [*(row for _, row in sorted(known, key=lambda each: each[0], reverse=not is_reversed)), *unknown]


def _amount(row: UsageRow | WaitRow, field: str) -> float | None:
    """A figure as a number; of waits that have not ended, what they are at least."""
    found = getattr(row, field)
    return found.seconds if isinstance(found, WaitFigure) else None if found is None else float(found)
