"""``pond compare``: several policies on one trace, as one HTML page."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from millpond.client.cli.commands.simulation.replay import compile_kernels
from millpond.client.cli.commands.simulation.simulation_options import (
    require_simulator,
    require_writable,
    scenario_of,
    simulation_options,
    workers_option,
    write_text,
)
from millpond.client.cli.error_output import INTERRUPTED, say
from millpond.client.cli.printing.listing import Column, show
from millpond.model.errors import InvalidInputError
from millpond.model.policies import ORDERINGS, PLACEMENTS, orderings_of, placements_of

if TYPE_CHECKING:
    from millpond.simulation.comparison import Replay

_MOST_SEEDS = 10_000
_FIGURES: Final = {
    "Mean completion time": "COMPLETION",
    "99th percentile": "P99",
    "Mean wait": "WAIT",
    "GPU time allocated": "ALLOCATED",
    "Preemptions": "PREEMPTIONS",
    "Allocated at 100 % asked": "ALLOCATED",
    "Allocated at 130 % asked": "AT 130 % ASKED",
    "Pods placed": "PLACED",
}
"""The metrics of the page that the terminal shows, with their titles there."""


@click.command()
@simulation_options
@click.option(
    "--policies",
    metavar="LIST",
    help="Policies, comma-separated: ORDERING or ORDERING/PLACEMENT; for openb, PLACEMENT.  [default: all]",
)
@click.option("--seeds", default="0", metavar="LIST", help="Seeds, such as 0,1,2 or 0-9.  [default: 0]")
@workers_option
@click.option("--html", "html_file", default="compare.html", metavar="FILE", show_default=True, help="Where to write.")
def command(policies: str | None, seeds: str, workers: int | None, html_file: str, **options: Any) -> int:
    """Compare policies on one trace and write a self-contained HTML page.

    \b
    pond compare --format philly --jobs case.csv --cluster 30x8 \\
        --policies fifo,srtf,default
    pond compare --format openb --nodes nodes.csv --jobs pods.csv \\
        --policies fgd,default --seeds 0-4
    """
    require_simulator()
    require_writable(html_file)
    from millpond.simulation.comparison import compare
    from millpond.simulation.report.page import render
    from millpond.simulation.scenario import read_packing, read_world

    chosen = _policies(policies, packs=options["trace_format"] == "openb")
    scenarios = [(label, scenario_of(**options, **policy)) for label, policy in chosen]
    first = scenarios[0][1]
    # The trace is read here once before any process starts, so that a bad row is reported at once; and kernels are
    # compiled once, not in every process.
    try:
        workload = read_packing(first).pods if first.packs else read_world(first).workload
        compile_kernels(first.seeded())
        with progress_bar("runs") as progress:
            replays = compare(scenarios, _seeds(seeds), workers or os.cpu_count() or 1, progress)
    except KeyboardInterrupt:
        say("interrupted; nothing was written")
        return INTERRUPTED
    cluster = first.cluster or Path(first.nodes).name
    kind = "pods" if first.packs else "jobs"
    name = Path(workload.source).name if Path(workload.source).is_file() else workload.source
    source = f"{len(workload.jobs):,} {kind} of {name} on {cluster}"
    write_text(html_file, render("Policies compared", replays, source))
    if html_file != "-":
        _print_figures(replays, packs=first.packs)
        click.echo(f"{len(replays)} runs compared in {html_file}")
    return 0


def _print_figures(replays: Sequence[Replay], *, packs: bool) -> None:
    """The figures that people ask for first, a line for each policy; the page has all of them."""
    from millpond.simulation.report.table import PACKING_METRICS, QUEUEING_METRICS, table_rows

    labels = list(dict.fromkeys(replay.label for replay in replays))
    by_policy = [[replay.summary for replay in replays if replay.label == label] for label in labels]
    rows = table_rows(PACKING_METRICS if packs else QUEUEING_METRICS, by_policy)
    shown = [row for row in rows if row.label in _FIGURES]
    columns = [Column("POLICY"), *(Column(_FIGURES[row.label], right=True) for row in shown)]
    show(columns, [[label, *(row.cells[place].text for row in shown)] for place, label in enumerate(labels)])


def _policies(text: str | None, *, packs: bool) -> list[tuple[str, dict[str, Any]]]:
    """Labels and what each stands for, as arguments of ``scenario_of``."""
    if text is None:
        words = list(PLACEMENTS if packs else ORDERINGS)
    else:
        words = list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not words:
        raise InvalidInputError("no policy to compare", "give at least one, such as --policies fifo,default")
    return [(word, _policy(word, packs=packs)) for word in words]


def _policy(word: str, *, packs: bool) -> dict[str, Any]:
    parts: dict[str, Any] = (
        {"placement": word} if packs else dict(zip(("ordering", "placement"), word.split("/", 1), strict=False))
    )
    orderings_of(parts.get("ordering", ""))
    placements_of(parts.get("placement", ""))
    return parts


def _seeds(text: str) -> list[int]:
    """Seeds of ``0,3,5-9``, each once."""
    seeds: list[int] = []
    for word in text.split(","):
        low, dash, high = word.strip().partition("-")
        if not low.isdigit() or (dash and not high.isdigit()):
            raise InvalidInputError(f"seeds {text!r}", "write numbers and ranges, such as 0,1,2 or 0-9")
        several = range(int(low), int(high or low) + 1)
        if len(several[: _MOST_SEEDS + 1]) > _MOST_SEEDS:
            raise InvalidInputError(f"seeds {text!r}", f"use at most {_MOST_SEEDS}")
        seeds.extend(several)
    if not seeds:
        raise InvalidInputError(f"no seed in {text!r}", "write ranges from low to high, such as 0-9")
    return list(dict.fromkeys(seeds))


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on a terminal, nothing in a pipe; what it gives is told how many are done, and of how many."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
