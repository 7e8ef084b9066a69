"""Reports as comma-separated values, for spreadsheets."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any, Final

from millpond.specs.api.reports.usage import UsageList, UsageRow, WaitFigure, WaitReport, WaitRow

_AMOUNTS: Final = (
    *("gpu_hours", "cpu_hours", "memory_gib_hours", "cost"),
    *("measured_gpu_hours", "busy_gpu_hours", "idle_gpu_hours"),
    *("energy_gpu_hours", "energy_kwh", "declared_kwh", "energy_cost", "priced_kwh", "co2_kg", "carbon_kwh"),
)
_REST: Final = "(others)"


def usage_csv(found: UsageList) -> str:
    """A line for each row, without the total, so that a spreadsheet adds up what is there."""
    titles = [found.by, *([] if found.by == "model" else ["model"]), "jobs", *_AMOUNTS]

    def line(row: UsageRow, name: str) -> list[Any]:
        model = [] if found.by == "model" else [row.model]
        return [name, *model, row.jobs, *(getattr(row, amount) for amount in _AMOUNTS)]

    rest = [] if found.rest is None else [line(found.rest, _REST)]
    return _text([titles, *(line(row, row.name) for row in found.rows), *rest])


def waits_csv(found: WaitReport) -> str:
    """A line for each row; ``…_at_least`` is 1 where a job that did not start has this place."""
    counts = ("jobs", "started", "gave_up", "waiting", "unknown")
    percentiles = ("p50_s", "p50_at_least", "p95_s", "p95_at_least")

    def line(row: WaitRow) -> list[Any]:
        figures = [*_figure(row.p50), *_figure(row.p95)]
        return [row.name, row.cards, *(getattr(row, count) for count in counts), *figures]

    return _text([[found.by, "cards", *counts, *percentiles], *map(line, found.rows)])


def _figure(figure: WaitFigure | None) -> tuple[float | None, int | None]:
    return (None, None) if figure is None else (round(figure.seconds, 3), int(figure.at_least))


def _text(lines: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows(["" if cell is None else _cell(cell) for cell in line] for line in lines)
    return text.getvalue()


def _cell(value: Any) -> Any:
    """A value; a text that a spreadsheet would take for a formula is marked as text."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
