"""``pond metrics``: what jobs reported of themselves (``millpond.job.report``), and their TensorBoard files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import click

from millpond.client.cli.connection import job_argument
from millpond.client.cli.printing.listing import Column, Listing, ListTable, lists
from millpond.client.sdk import Client
from millpond.specs.api.jobs.curves import CurveInfo, CurvesInfo
from millpond.specs.api.jobs.files import MetricSeries

_POINTS: Final = 5_000
_TOGETHER: Final = 12
"""So many metrics are answered at once."""


def _step(series: MetricSeries) -> str:
    return _plain(series.points[-1].step)


def _plain(step: float | None) -> str:
    return "" if step is None else f"{step:g}"


def _finite(series: MetricSeries) -> list[float]:
    return [point.value for point in series.points if point.value is not None]


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.6g}"


_OF_ONE_RUN: ListTable[MetricSeries] = ListTable(
    (
        Column("METRIC", lambda series: series.name),
        Column("TASK", lambda series: str(series.task), right=True),
        Column("STEP", _step, right=True),
        Column("LAST", lambda series: _number(series.points[-1].value), right=True),
        Column("LEAST", lambda series: _number(min(_finite(series), default=None)), right=True),
        Column("MOST", lambda series: _number(max(_finite(series), default=None)), right=True),
        Column("POINTS", lambda series: str(len(series.points)), right=True),
    )
)
_CURVES: Final[tuple[Column, ...]] = (
    Column("METRIC", lambda curve: curve.metric),
    Column("TASK", lambda curve: str(curve.task), right=True),
    Column("STEP", lambda curve: _plain(curve.last_step), right=True),
    Column("LAST", lambda curve: _number(curve.last), right=True),
    Column("LEAST", lambda curve: _number(curve.least), right=True),
    Column("MOST", lambda curve: _number(curve.most), right=True),
    Column("POINTS", lambda curve: str(curve.count + curve.not_finite), right=True),
    Column("FOLDER", lambda curve: curve.folder, unless_all=""),
)
_JOB: Final = Column("JOB", lambda curve: curve.job)


@click.command("metrics")
@job_argument("job")
@click.option("--task", type=click.IntRange(min=0), help="Only the task of this number.")
@click.option("--attempt", type=click.IntRange(min=1), help="Only what the run of this number reported.")
@lists(job="job")
def command(client: Client, job: str, task: int | None, attempt: int | None) -> Listing:
    """Print the metrics of JOB: the last value of each, and its bounds; with -o json the curves.

    They are what it reported and the scalars of TensorBoard files in its output, over all its attempts. Of an array
    or a sweep, those of its members.
    """
    empty = f"{job} has reported no metrics; in Python: millpond.job.report(loss=0.5, step=1)"
    if attempt is not None:
        found = client.files.metrics(job, attempt=attempt, task=task)
        note = "older points are left out" if found.truncated else ""
        return Listing.of(found, found.series, _OF_ONE_RUN, empty, note=note)
    curves = _all_curves(client, job, task)
    columns = (_JOB, *_CURVES) if len(curves.runs) > 1 else _CURVES
    table: ListTable[CurveInfo] = ListTable(columns)
    return Listing.of(curves, curves.curves, table, empty, note="; ".join(_notes(curves)))


def _all_curves(client: Client, job: str, task: int | None) -> CurvesInfo:
    """The curves of all metrics, of one task or of all."""
    found = client.charts.curves([job], points=_POINTS)
    curves, others = list(found.curves), [name for name in found.metrics if name not in found.shown]
    for begin in range(0, len(others), _TOGETHER):
        curves += client.charts.curves([job], others[begin : begin + _TOGETHER], points=_POINTS).curves
    wanted = [curve for curve in curves if task is None or curve.task == task]
    return replace(found, shown=found.metrics, curves=wanted)


def _notes(curves: CurvesInfo) -> Iterable[str]:
    for run in curves.runs:
        yield from run.notes
    if curves.left_out:
        yield f"{curves.left_out} further members are left out"
    if not curves.whole:
        yield "some files are not read yet: ask again"
