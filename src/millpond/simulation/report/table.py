"""The table of figures: one row for each metric, one column for each policy, mean and spread over seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

LESS, MORE, NEITHER = -1, 1, 0


@dataclass(frozen=True, slots=True)
class Metric:
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
    Metric("Mean completion time", ("avg_jct_s",), "time", LESS),
    Metric("Median completion time", ("median_jct_s",), "time", LESS),
    Metric("99th percentile", ("p99_jct_s",), "time", LESS),
    Metric("Mean wait", ("avg_wait_s",), "time", LESS),
    Metric("99th percentile of waits", ("p99_wait_s",), "time", LESS),
    Metric("Mean time to first start", ("avg_response_s",), "time", LESS),
    Metric("Mean slowdown", ("avg_slowdown",), "number", LESS),
    Metric("Makespan", ("makespan_s",), "time", LESS),
    Metric("Jobs per hour", ("jobs_per_hour",), "number", MORE),
    Metric("GPU time allocated", ("allocation_percent",), "percent", MORE),
    Metric("GPU time of useful work", ("utilisation_percent",), "percent", MORE),
    Metric("GPUs fragmented", ("fragmentation_percent",), "percent", LESS),
    Metric("Jain index", ("jain_index",), "index", MORE),
    Metric("Worst finish-time fairness", ("worst_rho",), "number", LESS),
    Metric("Deadlines missed", ("deadline_misses",), "number", LESS),
    Metric("Preemptions", ("preemptions",), "number"),
    Metric("GPU hours of overhead", ("overhead_gpu_hours",), "number", LESS),
    Metric("GPU hours of lost work", ("lost_gpu_hours",), "number", LESS),
    Metric("Jobs that never ended", ("unfinished",), "number", LESS),
    Metric("Jobs per CPU second", ("jobs_per_cpu_s",), "number", MORE),
)
PACKING_METRICS = (
    Metric("Allocated at 95 % asked", ("allocated_gpu_percent", "95"), "percent", MORE),
    Metric("Allocated at 100 % asked", ("allocated_gpu_percent", "100"), "percent", MORE),
    Metric("Allocated at 130 % asked", ("allocated_gpu_percent", "130"), "percent", MORE),
    Metric("The same, shapes learnt", ("learnt_mix", "allocated_gpu_percent", "130"), "percent", MORE),
    Metric("GPUs not allocated", ("unallocated_gpus",), "number", LESS),
    Metric("Fragmented GPU milli", ("fragmented_gpu_milli",), "number", LESS),
    Metric("Pods placed", ("placed",), "number", MORE),
    Metric("Pods failed", ("failed",), "number", LESS),
    Metric("CPU seconds", ("cpu_s",), "number", LESS),
)
_DULL = {"Deadlines missed", "Jobs that never ended", "GPU hours of overhead", "GPU hours of lost work", "Preemptions"}
"""Rows that are left out where every value is zero."""


def table_rows(metrics: Sequence[Metric], by_policy: Sequence[Sequence[dict[str, Any]]]) -> list[TableRow]:
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
