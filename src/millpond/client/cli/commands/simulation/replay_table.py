"""The result of a replay as a table for people, within 80 columns."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Console
from rich.table import Table

from millpond.simulation.results.summaries import flat

WIDTH = 80
HOURS_A_DAY = 24
_TIMES = (("completion", "jct_s"), ("waiting", "wait_s"), ("first start", "response_s"))
_PARTS = ("avg", "median", "p99", "max")


def print_summary(summary: dict[str, Any]) -> None:
    """Print the figures of one replay to standard output."""
    console = Console(highlight=False)
    console.width = min(console.width, WIDTH)
    with console.capture() as table:  # rich would end the program with 1 where its reader has gone
        if "rows" in summary:
            _print_rows(console, summary)
        elif "learnt_mix" in summary:
            _print_packing(console, summary)
        else:
            _print_queueing(console, summary)
        _print_parameters(console, summary["parameters"])
    click.echo(table.get(), nl=False)


def _print_rows(console: Console, summary: dict[str, Any]) -> None:
    rows = summary["rows"]
    columns = {
        "": [row["row"] for row in rows],
        "tasks\na week": [f"{row['tasks_per_week']:,.1f}" for row in rows],
        "used h/day\n(working)": [f"{row['used_hours']:.1f} ({row['used_hours_on_working_days']:.1f})" for row in rows],
        "on\nh/day": [f"{row['powered_hours']:.1f}" for row in rows],
        "busy\n%": [f"{row['powered_use_percent']:.1f}" for row in rows],
        "wait\np99": [duration(row["session_wait_p99_s"]) for row in rows],
        "refused": [f"{row['refused_sessions']:,}" for row in rows],
        "left/week\n(swapped)": [
            f"{row['preemptions_per_week']:.1f} ({row['suspensions_per_week']:.1f})" for row in rows
        ],
        "lost\n%": [f"{row['lost_percent']:.2f}" for row in rows],
        "kWh": ["unknown" if row["energy_kwh"] is None else f"{row['energy_kwh']:,.0f}" for row in rows],
    }
    if all(row["energy_kwh"] is None for row in rows):
        del columns["kWh"]
    switches = any(row["powered_hours"] < HOURS_A_DAY for row in rows)
    del columns["used h/day\n(working)" if switches else "on\nh/day"]  # both do not fit
    table = Table(box=None, pad_edge=False)
    for heading in columns:
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*cells)
    console.print(table)


def _print_packing(console: Console, summary: dict[str, Any]) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in ("", "shapes known", "shapes learnt"):
        table.add_column(heading, justify="right" if heading else "left")
    both = (summary, summary["learnt_mix"])
    for percent in summary["allocated_gpu_percent"]:
        shares = (result["allocated_gpu_percent"][percent] for result in both)
        table.add_row(
            f"GPUs allocated at {percent} % asked", *("not reached" if s is None else f"{s:.2f} %" for s in shares)
        )
    rows = (
        ("GPUs not allocated", "unallocated_gpus", "{:,.2f}"),
        ("fragmented GPUs (FGD)", "fragmented_gpu_milli", "{:,.0f} milli"),
        ("pods placed", "placed", "{:,}"),
        ("pods failed", "failed", "{:,}"),
        ("CPU time", "cpu_s", "{:,.2f} s"),
    )
    for label, key, form in rows:
        table.add_row(label, *(form.format(result[key]) for result in both))
    console.print(table)


def _print_queueing(console: Console, summary: dict[str, Any]) -> None:
    times = Table(box=None, pad_edge=False)
    for heading in ("", "mean", "median", "p99", "max"):
        times.add_column(heading, justify="right" if heading else "left")
    for label, key in _TIMES:
        times.add_row(label, *(duration(summary[f"{part}_{key}"]) for part in _PARTS))
    times.add_row("slowdown", *(number(summary[f"{part}_slowdown"]) for part in _PARTS))
    console.print(times)
    console.print()
    facts = Table(box=None, pad_edge=False, show_header=False)
    facts.add_column()
    facts.add_column(justify="right")
    unfinished = f" ({summary['unfinished']:,} never ended)" if summary["unfinished"] else ""
    facts.add_row("jobs", f"{summary['jobs']:,}{unfinished}")
    facts.add_row("makespan", duration(summary["makespan_s"]))
    facts.add_row("throughput", f"{number(summary['jobs_per_hour'])} jobs/h")
    for label, key in (("allocated", "allocation"), ("useful work", "utilisation"), ("fragmented", "fragmentation")):
        percent = summary[f"{key}_percent"]
        facts.add_row(f"GPU time {label}", "n/a" if percent is None else f"{number(percent)} %")
    facts.add_row("Jain index, worst rho", f"{number(summary['jain_index'])}, {number(summary['worst_rho'])}")
    if summary["deadlines"]:
        facts.add_row("deadlines missed", f"{summary['deadline_misses']:,} of {summary['deadlines']:,}")
    facts.add_row("preemptions", f"{summary['preemptions']:,}")
    forecasts = summary["forecasts"]
    if forecasts:
        facts.add_row("forecasts off by a factor of", number(2 ** forecasts["mean_log2_error"]))
    facts.add_row("CPU time", f"{summary['cpu_s']:.2f} s ({summary['jobs_per_cpu_s'] or 0:,.0f} jobs/s)")
    console.print(facts)


def _print_parameters(console: Console, parameters: dict[str, Any]) -> None:
    shown = (f"{key}={value}" for key, value in flat(parameters).items() if value not in ("", None))
    console.print()
    console.print("with " + ", ".join(shown), style="dim")


def duration(seconds: float | None) -> str:
    """Seconds in the unit that reads best."""
    if seconds is None:
        return "-"
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.2f} {unit}"
    return f"{seconds:.1f} s"


def number(value: float | None) -> str:
    """Three significant digits, or all before the point."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
