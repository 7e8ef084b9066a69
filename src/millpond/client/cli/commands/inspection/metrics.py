"""``pond metrics``: what a job reported of itself (``millpond.job.report``)."""

from __future__ import annotations

import click

from millpond.client.cli.job_completion import job_argument
from millpond.client.cli.printing.listing import Listing, lists
from millpond.client.cli.printing.tables import Column, ListTable
from millpond.client.sdk import Client
from millpond.specs.api.jobs.files import MetricSeries


def _step(series: MetricSeries) -> str:
    step = series.points[-1].step
    return "" if step is None else f"{step:g}"


def _finite(series: MetricSeries) -> list[float]:
    return [point.value for point in series.points if point.value is not None]


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.6g}"


_TABLE: ListTable[MetricSeries] = ListTable(
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


@click.command("metrics")
@job_argument("job")
@click.option("--task", type=click.IntRange(min=0), help="Only the task of this number.")
@click.option("--attempt", type=click.IntRange(min=1), help="The run of this number [default: the last].")
@lists(job="job")
def command(client: Client, job: str, task: int | None, attempt: int | None) -> Listing:
    """Print the metrics that JOB reported: the last value of each, and its bounds; with -o json every point."""
    found = client.files.metrics(job, attempt=attempt, task=task)
    empty = f"{found.job} has reported no metrics; in Python: millpond.job.report(loss=0.5, step=1)"
    return Listing.of(found, found.series, _TABLE, empty, note="older points are left out" if found.truncated else "")
