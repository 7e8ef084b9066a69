"""``pond replay``: play a cluster trace through the scheduler and print what came out."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from millpond.client.cli.commands.simulation.simulation_options import (
    require_simulator,
    require_writable,
    scenario_of,
    scenario_settings,
    simulation_options,
    write_text,
)
from millpond.client.cli.error_output import INTERRUPTED, say
from millpond.specs.option_types import OrderingChoice, PlacementChoice

if TYPE_CHECKING:
    from millpond.scheduling.settings import Settings
    from millpond.simulation.scenario import Scenario

Progress = Callable[[int], None]
SKIPPED_SHOWN = 5
_COMPILING = "compiling kernels, once on this machine"


@click.command()
@simulation_options
@click.option("--placement", type=PlacementChoice(), help="Where jobs go.  [default: default; published: best-fit]")
@click.option("--ordering", type=OrderingChoice(), help="Who is next.  [default: default]")
@click.option("--seed", type=int, default=0, help="For arrival orders, synthetic jobs, random placement, failures.")
@click.option("--scenario", metavar="NAME|FILE", help="Instead of a trace: aistation, utilisation, or a file.")
@click.option("--write-jobs", type=click.Path(dir_okay=False), help="synthetic: keep the jobs as a native trace.")
@click.option(
    "--json", "json_file", metavar="[FILE]", is_flag=False, flag_value="-",
    help="Write the result as JSON, without FILE or with - to standard output.",
)  # fmt: skip
def command(scenario: str | None, write_jobs: str | None, json_file: str | None, **options: Any) -> int:
    """Replay a cluster trace through the scheduler and print the result.

    \b
    pond replay --format philly --jobs case.csv --cluster 30x8 --durations exact
    pond replay --format openb --nodes nodes.csv --jobs pods.csv --seed 42
    pond replay --format synthetic --jobs 2000 --load 0.95 --cluster 8x8
    pond replay --scenario aistation
    """
    require_simulator()
    require_writable(json_file, write_jobs)
    done = [0]
    try:
        if scenario is None:
            replayed = scenario_of(**options)
            summary = _pack(replayed, done) if replayed.packs else _queue(replayed, done, write_jobs)
        else:
            summary = _play(scenario, scenario_settings(**options, write_jobs=write_jobs), done)
    except KeyboardInterrupt:
        say(f"interrupted after {done[0]} jobs; nothing was written")
        return INTERRUPTED
    if json_file is not None:
        write_text(json_file, json.dumps(summary, indent=2) + "\n")
    if json_file != "-":
        from millpond.client.cli.commands.simulation.replay_table import print_summary

        print_summary(summary)
    return 0


def compile_kernels(settings: Settings) -> None:
    """Have all kernels ready; that they are being compiled, which happens once on a machine, is shown as it goes on."""
    from millpond.simulation.kernel_warmup import kernel_progress, warm_up

    with _compilation() as count, kernel_progress(count):
        warm_up(settings)


@contextmanager
def _compilation() -> Iterator[Progress]:
    """A line that counts on a terminal, one that says what takes so long in a pipe; nothing where nothing compiles."""
    if not sys.stderr.isatty():
        yield lambda number: None if number else say(f"{_COMPILING}; this takes some tens of seconds")
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("getting ready", total=None)
        yield lambda number: shown.update(task, description=f"{_COMPILING}: {number} done")


def _pack(scenario: Scenario, done: list[int]) -> dict[str, Any]:
    from millpond.simulation.results.summaries import packing_summary
    from millpond.simulation.scenario import read_packing

    packing = read_packing(scenario)
    _print_skipped(packing.pods.skipped)
    compile_kernels(scenario.seeded())
    total = len(packing.order)
    with _progress("pods, shapes known", total, done) as progress:
        known = packing.run(scenario.seeded(), progress=progress)
    with _progress("pods, shapes learnt", total, done) as progress:
        learnt = packing.run(scenario.seeded(), mix_known=False, progress=progress)
    return packing_summary(scenario, packing, known, learnt, time.process_time())


def _queue(scenario: Scenario, done: list[int], write_jobs: str | None) -> dict[str, Any]:
    from millpond.simulation.queueing import replay
    from millpond.simulation.readers import native
    from millpond.simulation.results.summaries import queueing_summary
    from millpond.simulation.scenario import read_world

    world = read_world(scenario)
    if write_jobs is not None:
        import io

        text = io.StringIO()
        native.write(world.workload, text)
        write_text(write_jobs, text.getvalue())
    _print_skipped(world.workload.skipped)
    compile_kernels(scenario.seeded())
    with _progress("jobs", len(world.workload.jobs), done) as progress:
        result = replay(world, scenario.seeded(), progress)
    if result.stuck:
        say(f"warning: {result.metrics.unfinished} jobs never ended; {result.stuck}")
    return queueing_summary(scenario, world, result, time.process_time())


def _play(name: str, settings: Settings, done: list[int]) -> dict[str, Any]:
    from millpond.simulation.scenarios.rows import play, row_world, scenario_summary
    from millpond.simulation.scenarios.scenario_file import load_scenario

    scenario = load_scenario(name)
    worlds = [row_world(scenario.file, row, settings.seed) for row in scenario.rows]
    compile_kernels(settings)
    played = []
    for row, world in zip(scenario.rows, worlds, strict=True):
        with _progress(f"jobs of {row.file.name}", len(world.workload.jobs), done) as progress:
            of_row = replace(settings, usage_half_life_s=row.cluster.usage_half_life_s)
            played.append(play(scenario.file, world, of_row, progress))
    return scenario_summary(scenario, worlds, played, settings)


def _print_skipped(skipped: tuple[str, ...]) -> None:
    if skipped:
        more = [f"and {len(skipped) - SKIPPED_SHOWN} more"] if len(skipped) > SKIPPED_SHOWN else []
        say("\n".join([f"left out {len(skipped)} bad rows:", *skipped[:SKIPPED_SHOWN], *more]))


@contextmanager
def _progress(what: str, total: int, done: list[int]) -> Iterator[Progress]:
    """A progress bar on a terminal, nothing in a pipe; ``done[0]`` always knows how far it is."""

    def count(number: int) -> None:
        done[0] = number

    if not sys.stderr.isatty():
        yield count
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)

        def show(number: int) -> None:
            count(number)
            bar.update(task, completed=number)

        yield show
