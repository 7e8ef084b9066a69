"""``pond metrics``: what a job reported of itself (``millpond.job.report``)."""

from __future__ import annotations

from pathlib import Path

import click

from millpond.client.cli.connection import asks_server, connect
from millpond.client.cli.error_output import say
from millpond.client.cli.job_completion import job_argument
from millpond.client.cli.listing import Listing, listing_options, show_listing
from millpond.client.cli.tables import Column, show
from millpond.specs.api.files import MetricSeries, MetricsInfo

_COLUMNS = (
    Column("METRIC"),
    Column("TASK", right=True),
    Column("STEP", right=True),
    Column("LAST", right=True),
    Column("LEAST", right=True),
    Column("MOST", right=True),
    Column("POINTS", right=True),
)


@click.command("metrics")
@job_argument("job")
@click.option("--task", type=click.IntRange(min=0), help="Only the task of this number.")
@click.option("--attempt", type=click.IntRange(min=1), help="The run of this number [default: the last].")
@listing_options
@asks_server
def command(job: str, task: int | None, attempt: int | None, output: str, watch: bool, state_dir: Path | None) -> None:
    """Print the metrics that JOB reported: the last value of each, and its bounds; with -o json every point."""
    with connect(state_dir) as client:
        meant = client.find(job).id

        def look() -> Listing:
            found = client.files.metrics(meant, attempt=attempt, task=task)
            return Listing(found, [series.name for series in found.series], lambda wide: _draw(found, wide))

        show_listing(look, output, watch)


def _draw(found: MetricsInfo, wide: bool) -> None:
    if not found.series:
        say(f"{found.job} has reported no metrics; in Python: millpond.job.report(loss=0.5, step=1)")
        return
    show(_COLUMNS, [_row(series) for series in found.series], fitted=not wide)
    if found.truncated:
        say("older points are left out")


def _row(series: MetricSeries) -> list[str]:
    finite = [point.value for point in series.points if point.value is not None]
    last = series.points[-1]
    step = "" if last.step is None else f"{last.step:g}"
    shown = (last.value, min(finite, default=None), max(finite, default=None))
    numbers = ("not finite" if value is None else f"{value:.6g}" for value in shown)
    return [series.name, str(series.task), step, *numbers, str(len(series.points))]
