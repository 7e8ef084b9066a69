"""``pond usage``: who has held how much, for how long, and what it costs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, get_args

import click

from millpond.client.cli.commands.accounts.limit_options import disk_text
from millpond.client.cli.connection import connect, state_dir_option
from millpond.client.cli.printing.formats import instant_text, span
from millpond.client.cli.printing.listing import Column, Listing, listing_options, show, show_listing
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

_AMOUNTS = ("JOBS", "GPU HOURS", "IDLE", "USED", "CPU HOURS", "KWH")
_MOST_GAPS = 3
_WAITS = ("CARDS", "JOBS", "P50", "P95", "STARTED", "ENDED BEFORE", "WAITING", "UNKNOWN")


@click.command("usage")
@click.option("--by", type=click.Choice(get_args(Grouping)), help="What to add up by [default: user; of waits: group].")
@click.option("--waits", is_flag=True, help="How long jobs waited, by --by and number of cards, instead.")
@click.option("--month", metavar="YYYY-MM", help="A calendar month.")
@click.option("--since", metavar="DATE", help="From then on, such as 2026-11-01, or of late, such as 7d.")
@click.option("--until", metavar="DATE", help="Up to the beginning of this day, or this instant [default: now].")
@listing_options("csv")
@state_dir_option
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
    the measured time they computed. KWH is what the cards drew, "≥" where that
    is known of a part of the hours. -o wide adds what the energy cost and
    emitted. Waits last from when a job could start to its first start.
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
    for line in _energy_notes(found):
        click.echo(line)
    for held in found.disk:
        click.echo(disk_text(held))


def _draw_rows(found: UsageList, wide: bool) -> None:
    by_model = found.by == "model"
    of_energy = (*((f"{found.energy_currency} OF KWH",) if found.energy_currency else ()), "CO2 KG")
    amounts = (*_AMOUNTS, *((*of_energy, "GIB HOURS") if wide else ()), *((found.currency,) if found.currency else ()))
    columns = [Column(found.by.upper(), gives_way=True), *([] if by_model else [Column("MODEL", gives_way=True)])]
    columns += [Column(title, right=True) for title in amounts]
    several = [*found.rows, *([found.total] if found.total is not None and len(found.rows) > 1 else [])]
    rows = [_cells(row, found, wide) for row in several]
    if len(several) > len(found.rows):
        rows[-1][0] = "total"
    show(columns, rows, fitted=not wide)


def _cells(row: UsageRow, found: UsageList, wide: bool) -> list[str]:
    idle = f"{row.idle_gpu_hours:.3f}" if row.measured_gpu_hours else "unknown" if row.gpu_hours else ""
    used = "" if row.busy_percent is None else f"{row.busy_percent:.0f} %"
    model = [] if found.by == "model" else [row.model]
    cells = [row.name, *model, str(row.jobs), f"{row.gpu_hours:.3f}", idle, used, f"{row.cpu_hours:.3f}"]
    cells.append(_of_energy(row.energy_kwh, row, 3))
    if wide:
        cells += [_of_energy(row.energy_cost, row, 2, of_kwh=row.priced_kwh)] if found.energy_currency else []
        cells += [_of_energy(row.co2_kg, row, 3, of_kwh=row.carbon_kwh), f"{row.memory_gib_hours:.3f}"]
    return [*cells, *(["" if row.cost is None else f"{row.cost:.2f}"] if found.currency else [])]


def _of_energy(amount: float | None, row: UsageRow, digits: int, *, of_kwh: float | None = None) -> str:
    """An amount of energy, or what was charged for so many kWh of it; ``≥`` if more was drawn than that."""
    if amount is None:
        return "unknown" if row.gpu_hours else ""
    is_partial = row.is_energy_partial or (of_kwh is not None and of_kwh < (row.energy_kwh or 0.0))
    return f"{'≥ ' if is_partial else ''}{amount:.{digits}f}"


def _energy_notes(found: UsageList) -> list[str]:
    """What of the energy was declared, and why some has no price or no emissions."""
    total = found.total
    notes = []
    if total is not None and total.declared_kwh:
        notes.append(f"{total.declared_kwh:.3f} kWh follow from the declared power of cards that report none")
    words = {"price": "price of energy", "carbon": "carbon intensity"}
    for of, word in words.items():
        gaps = [gap for gap in found.gaps if gap.of == of]
        for gap in gaps[:_MOST_GAPS]:
            notes.append(f"no {word} is known from {instant_text(gap.since)} to {instant_text(gap.until)}")
        if len(gaps) > _MOST_GAPS:
            notes.append(f"nor in {len(gaps) - _MOST_GAPS} more spans")
    return notes


def _draw_waits(found: WaitReport) -> None:
    if not found.rows:
        click.echo("no job could start in that time", err=True)
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
