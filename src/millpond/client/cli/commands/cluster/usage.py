"""``pond usage``: who has held how much, for how long, and what it costs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, get_args

import click

from millpond.client.cli.commands.accounts.limit_options import disk_text
from millpond.client.cli.connection import asks_server, connect
from millpond.client.cli.printing.formats import span
from millpond.client.cli.printing.listing import Listing, listing_options_with, show_listing
from millpond.client.cli.printing.tables import Column, show
from millpond.client.cli.time_options import parse_date, parse_past
from millpond.client.sdk import Client
from millpond.model.errors import InvalidInputError
from millpond.specs.api.reports.report_csv import usage_csv, waits_csv
from millpond.specs.api.reports.usage import (
    Grouping,
    UsageList,
    UsageRow,
    WaitFigure,
    WaitGrouping,
    WaitReport,
    WaitRow,
)
from millpond.specs.calendar_spans import month_span

_AMOUNTS = ("JOBS", "GPU HOURS", "IDLE", "USED", "CPU HOURS")
_WAITS = ("CARDS", "JOBS", "P50", "P95", "STARTED", "ENDED BEFORE", "WAITING", "UNKNOWN")


@click.command("usage")
@click.option("--by", type=click.Choice(get_args(Grouping)), help="What to add up by [default: user; of waits: group].")
@click.option("--waits", is_flag=True, help="How long jobs waited, by --by and number of cards, instead.")
@click.option("--month", metavar="YYYY-MM", help="A calendar month.")
@click.option("--since", metavar="DATE", help="From then on, such as 2026-11-01, or of late, such as 7d.")
@click.option("--until", metavar="DATE", help="Up to the beginning of this day, or this instant [default: now].")
@listing_options_with("csv")
@asks_server
def command(
    by: str | None,
    waits: bool,
    month: str | None,
    since: str | None,
    until: str | None,
    output: str,
    watch: bool,
    state_dir: Path | None,
) -> None:
    """Show usage of the pool and its costs, or waits [default: of all time]. Days begin at midnight of this machine.

    IDLE are hours in which cards were held and hardly computed, USED how much of
    the measured time they computed. Waits last from submission to first start.
    """
    begin, end = _span(month, since, until)
    if watch and output == "csv":
        raise InvalidInputError("--watch with -o csv", "leave one of them out")
    if waits and by is not None and by not in get_args(WaitGrouping):
        raise InvalidInputError(f"--waits with --by {by}", f"name one of {', '.join(get_args(WaitGrouping))}")
    with connect(state_dir) as client:

        def look() -> Listing:
            if waits:
                report = client.waits(by or "group", begin, end)
                return Listing(report, [row.name for row in report.rows], lambda _wide: _draw_waits(report))
            found = client.usage(by or "user", begin, end)
            return Listing(found, [row.name for row in found.rows], lambda wide: _draw(found, wide))

        if output == "csv":
            click.echo(_csv(client, waits, by, (begin, end)), nl=False)
        else:
            show_listing(look, output, watch)


def _span(month: str | None, since: str | None, until: str | None) -> tuple[float, float | None]:
    """The first and the last instant that were asked for; None: now."""
    if month is not None:
        if since is not None or until is not None:
            raise InvalidInputError("both --month and a span of time", "leave one of them out")
        return month_span(month)
    begin = parse_past(since, "--since", time.time()) if since is not None else 0.0
    end = parse_date(until, "--until") if until is not None else None
    if end is not None and end < begin:
        raise InvalidInputError("--until lies before --since", "exchange them")
    return begin, end


def _csv(client: Client, waits: bool, by: str | None, span: tuple[float, float | None]) -> str:
    if waits:
        return waits_csv(client.waits(by or "group", *span))
    return usage_csv(client.usage(by or "user", *span))


def _draw(found: UsageList, wide: bool) -> None:
    if found.rows:
        _draw_rows(found, wide)
    else:
        click.echo("nothing was held in that time", err=True)
    for held in found.disk:
        click.echo(disk_text(held))


def _draw_rows(found: UsageList, wide: bool) -> None:
    by_model = found.by == "model"
    amounts = (*_AMOUNTS, *(("GIB HOURS",) if wide else ()), *((found.currency,) if found.currency else ()))
    columns = [Column(found.by.upper(), gives_way=True), *([] if by_model else [Column("MODEL", gives_way=True)])]
    columns += [Column(title, right=True) for title in amounts]
    several = [*found.rows, *([found.total] if found.total is not None and len(found.rows) > 1 else [])]
    rows = [_cells(row, by_model, wide, bool(found.currency)) for row in several]
    if len(several) > len(found.rows):
        rows[-1][0] = "total"
    show(columns, rows, fitted=not wide)


def _cells(row: UsageRow, by_model: bool, wide: bool, has_prices: bool) -> list[str]:
    idle = f"{row.idle_gpu_hours:.3f}" if row.measured_gpu_hours else "unknown" if row.gpu_hours else ""
    used = "" if row.busy_percent is None else f"{row.busy_percent:.0f} %"
    cells = [row.name, *([] if by_model else [row.model]), str(row.jobs), f"{row.gpu_hours:.3f}", idle, used]
    cells += [f"{amount:.3f}" for amount in (row.cpu_hours, *((row.memory_gib_hours,) if wide else ()))]
    return [*cells, *(["" if row.cost is None else f"{row.cost:.2f}"] if has_prices else [])]


def _draw_waits(found: WaitReport) -> None:
    if not found.rows:
        click.echo("no job was submitted in that time", err=True)
        return
    columns = [Column(found.by.upper(), gives_way=True), *(Column(title, right=True) for title in _WAITS)]
    rows = [_wait_cells(row, row.name) for row in found.rows]
    show(columns, [*rows, *([_wait_cells(found.total, "total")] if len(rows) > 1 else [])], fitted=True)


def _wait_cells(row: WaitRow, name: str) -> list[str]:
    counts: tuple[Any, ...] = (row.started, row.gave_up, row.waiting, row.unknown)
    return [name, row.cards, str(row.jobs), _figure(row.p50), _figure(row.p95), *map(str, counts)]


def _figure(figure: WaitFigure | None) -> str:
    if figure is None:
        return ""
    return f"{'≥ ' if figure.at_least else ''}{span(figure.seconds)}"
