"""``pond usage``: who has held how much, for how long, and what it costs."""

from __future__ import annotations

import csv
import datetime
import sys
import time
from pathlib import Path
from typing import get_args

import click

from millpond.client.cli.commands.accounts.limit_options import disk_text
from millpond.client.cli.connection import asks_server, connect
from millpond.client.cli.printing.listing import Listing, listing_options_with, show_listing
from millpond.client.cli.printing.tables import Column, show
from millpond.client.cli.time_options import parse_date, parse_past
from millpond.model.errors import InvalidInputError
from millpond.specs.api.usage import Grouping, UsageList, UsageRow

_COLUMNS = (
    Column("MODEL", gives_way=True),
    Column("JOBS", right=True),
    Column("GPU HOURS", right=True),
    Column("CPU HOURS", right=True),
    Column("GIB HOURS", right=True),
)
_FIELDS = ("name", "model", "jobs", "gpu_hours", "cpu_hours", "memory_gib_hours", "cost")


@click.command("usage")
@click.option(
    "--by",
    type=click.Choice(get_args(Grouping)),
    default="user",
    show_default=True,
    help="What to add up by.",
)
@click.option("--month", metavar="YYYY-MM", help="A calendar month.")
@click.option("--since", metavar="DATE", help="From then on, such as 2026-11-01, or of late, such as 7d.")
@click.option("--until", metavar="DATE", help="Up to the beginning of this day, or this instant [default: now].")
@listing_options_with("csv")
@asks_server
def command(
    by: str,
    month: str | None,
    since: str | None,
    until: str | None,
    output: str,
    watch: bool,
    state_dir: Path | None,
) -> None:
    """Show usage of the pool and its costs [default: of all time]. Days begin at midnight of this machine's time."""
    if month is not None and (since is not None or until is not None):
        raise InvalidInputError("both --month and a span of time", "leave one of them out")
    begin = parse_past(since, "--since", time.time()) if since is not None else 0.0
    end = parse_date(until, "--until") if until is not None else None
    if month is not None:
        begin, end = span_of_month(month)
    if end is not None and end < begin:
        raise InvalidInputError("--until lies before --since", "exchange them")
    if watch and output == "csv":
        raise InvalidInputError("--watch with -o csv", "leave one of them out")
    with connect(state_dir) as client:

        def look() -> Listing:
            found = client.usage(by, begin, end)
            return Listing(found, [row.name for row in found.rows], lambda wide: _draw(found, wide))

        if output == "csv":
            _write_csv(client.usage(by, begin, end))
        else:
            show_listing(look, output, watch)


def span_of_month(text: str) -> tuple[float, float]:
    """First and last instant of a calendar month, here.

    Raises:
        InvalidInputError: it is none.
    """
    try:
        first = datetime.datetime.fromisoformat(f"{text}-01")
    except ValueError as error:
        raise InvalidInputError(f"--month {text!r} is not a month", "write it as 2026-11") from error
    following = (first + datetime.timedelta(days=32)).replace(day=1)
    return first.astimezone().timestamp(), following.astimezone().timestamp()


def _write_csv(found: UsageList) -> None:
    fields = [field for field in _FIELDS if field != "model" or found.by != "model"]
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow([found.by, *fields[1:]])
    for row in found.rows:
        cells = [getattr(row, field) for field in fields]
        writer.writerow(["" if cell is None else cell for cell in cells])


def _draw(found: UsageList, wide: bool) -> None:
    if found.rows:
        _draw_rows(found, wide)
    else:
        click.echo("nothing was held in that time", err=True)
    for held in found.disk:
        click.echo(disk_text(held))


def _draw_rows(found: UsageList, wide: bool) -> None:
    by_model = found.by == "model"
    columns = [Column(found.by.upper(), gives_way=True), *(_COLUMNS[1:] if by_model else _COLUMNS)]
    rows = [_cells(row, by_model) for row in found.rows]
    if found.currency:
        columns.append(Column(found.currency, right=True))
        for cells, row in zip(rows, found.rows, strict=True):
            cells.append("" if row.cost is None else f"{row.cost:.2f}")
    show(columns, rows, fitted=not wide)


def _cells(row: UsageRow, by_model: bool) -> list[str]:
    hours = [f"{amount:.2f}" for amount in (row.gpu_hours, row.cpu_hours, row.memory_gib_hours)]
    return [row.name, *([] if by_model else [row.model]), str(row.jobs), *hours]
