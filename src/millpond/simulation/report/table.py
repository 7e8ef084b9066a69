"""The table of figures: one row for each metric, one column for each policy, mean and spread over seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

LESS, MORE, NEITHER = -1, 1, 0


@dataclass(frozen=True, slots=True)
class MetricRow:
    """A row of the table.

    Attributes:
        path: keys into a summary.
        form: ``time``, ``percent``, ``index`` or ``number``.
        better: whether less or more is better, or neither.
    """

    label: str
    path: tuple[str, ...]
    form: str
    better: int = NEITHER


@dataclass(frozen=True, slots=True)
class Cell:
    """A mean over seeds, its standard deviation (empty for one seed), and whether it is the best of its row."""

    text: str
    spread: str
    best: bool


@dataclass(frozen=True, slots=True)
class TableRow:
    """A metric over the policies."""

    label: str
    cells: tuple[Cell, ...]


QUEUEING_METRICS = (
    MetricRow("Mean completion time", ("avg_jct_s",), "time", LESS),
    MetricRow("Median completion time", ("median_jct_s",), "time", LESS),
    MetricRow("99th percentile", ("p99_jct_s",), "time", LESS),
    MetricRow("Mean wait", ("avg_wait_s",), "time", LESS),
    MetricRow("99th percentile of waits", ("p99_wait_s",), "time", LESS),
    MetricRow("Mean time to first start", ("avg_response_s",), "time", LESS),
    MetricRow("Mean slowdown", ("avg_slowdown",), "number", LESS),
    MetricRow("Makespan", ("makespan_s",), "time", LESS),
    MetricRow("Jobs per hour", ("jobs_per_hour",), "number", MORE),
    MetricRow("GPU time allocated", ("allocation_percent",), "percent", MORE),
    MetricRow("GPU time of useful work", ("utilisation_percent",), "percent", MORE),
    MetricRow("GPUs fragmented", ("fragmentation_percent",), "percent", LESS),
    MetricRow("Jain index", ("jain_index",), "index", MORE),
    MetricRow("Worst finish-time fairness", ("worst_rho",), "number", LESS),
    MetricRow("Deadlines missed", ("deadline_misses",), "number", LESS),
    MetricRow("Preemptions", ("preemptions",), "number"),
    MetricRow("GPU hours of overhead", ("overhead_gpu_hours",), "number", LESS),
    MetricRow("GPU hours of lost work", ("lost_gpu_hours",), "number", LESS),
    MetricRow("Jobs that never ended", ("unfinished",), "number", LESS),
    MetricRow("Jobs per CPU second", ("jobs_per_cpu_s",), "number", MORE),
)
PACKING_METRICS = (
    MetricRow("Allocated at 95 % asked", ("allocated_gpu_percent", "95"), "percent", MORE),
    MetricRow("Allocated at 100 % asked", ("allocated_gpu_percent", "100"), "percent", MORE),
    MetricRow("Allocated at 130 % asked", ("allocated_gpu_percent", "130"), "percent", MORE),
    MetricRow("The same, shapes learnt", ("learnt_mix", "allocated_gpu_percent", "130"), "percent", MORE),
    MetricRow("GPUs not allocated", ("unallocated_gpus",), "number", LESS),
    MetricRow("Fragmented GPU milli", ("fragmented_gpu_milli",), "number", LESS),
    MetricRow("Pods placed", ("placed",), "number", MORE),
    MetricRow("Pods failed", ("failed",), "number", LESS),
    MetricRow("CPU seconds", ("cpu_s",), "number", LESS),
)
_DULL = {"Deadlines missed", "Jobs that never ended", "GPU hours of overhead", "GPU hours of lost work", "Preemptions"}
"""Rows that are left out where every value is zero."""


def table_rows(metrics: Sequence[MetricRow], by_policy: Sequence[Sequence[dict[str, Any]]]) -> list[TableRow]:
    """Rows of the table.

    Args:
        by_policy: for each policy its summaries, one for each seed.
    """
    rows = []
    for metric in metrics:
        columns = [[_value(summary, metric.path) for summary in summaries] for summaries in by_policy]
        means = [
            math.nan if None in values else statistics.fmean(v for v in values if v is not None) for values in columns
        ]
        if metric.label in _DULL and not any(means):
            continue
        shown = [_show(mean, metric.form) for mean in means]
        best = _best(means, shown, metric.better)
        cells = (
            Cell(text, _spread(values, metric.form), text == best) for text, values in zip(shown, columns, strict=True)
        )
        rows.append(TableRow(metric.label, tuple(cells)))
    return rows


def _value(summary: dict[str, Any], path: tuple[str, ...]) -> float | None:
    value: Any = summary
    for key in path:
        value = value[key]
    return None if value is None else float(value)


def _best(means: list[float], shown: list[str], better: int) -> str:
    """The text of the best value; empty where there is no contest."""
    known = [mean for mean in means if not math.isnan(mean)]
    if better == NEITHER or len(set(shown)) < 2 or not known:
        return ""
    return shown[means.index(max(known) if better == MORE else min(known))]


def _spread(values: list[float | None], form: str) -> str:
    known = [value for value in values if value is not None]
    return _show(statistics.stdev(known), form) if len(known) > 1 else ""


def _show(value: float, form: str) -> str:
    if math.isnan(value):
        return "n/a"
    if form == "percent":
        return f"{value:.2f} %"
    if form == "index":
        return f"{value:.4f}"
    if form == "time":
        return f"{value:,.0f} s" if value >= 100 else f"{value:.1f} s"
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"
