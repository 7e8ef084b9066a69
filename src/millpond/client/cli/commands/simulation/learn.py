"""``pond learn``: a correction of the default ordering, learnt from a trace and judged on what came later."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from millpond.client.cli.commands.simulation.compare import progress_bar
from millpond.client.cli.commands.simulation.replay import compile_kernels
from millpond.client.cli.commands.simulation.simulation_options import (
    require_simulator,
    scenario_of,
    simulation_options,
    workers_option,
)
from millpond.client.cli.error_output import INTERRUPTED, say
from millpond.client.cli.printing.listing import Column, show
from millpond.model.errors import InvalidInputError
from millpond.model.policies import without_weights
from millpond.specs.option_types import OrderingChoice

if TYPE_CHECKING:
    from millpond.simulation.learning import Judgement

PEERS = ("edf", "sjf", "ssf")
"""Without deadlines ``edf`` is first come, first served with EASY backfill; with forecasts ``ssf`` is QSSF."""

NOT_BETTER = 1


@click.command()
@simulation_options
@click.option("--judge", type=OrderingChoice(), help="Learn nothing: judge this ordering by the same rule.")
@click.option("--rounds", type=click.IntRange(1, 1000), default=12, show_default=True, help="Steps of learning.")
@click.option("--samples", type=click.IntRange(2, 1000), default=12, show_default=True, help="Tried in each round.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, help="What is tried is drawn by it.")
@workers_option
def command(judge: str | None, rounds: int, samples: int, seed: int, workers: int | None, **options: Any) -> int:
    """Learn an ordering from the first half of a trace and judge it on the second.

    What is printed last is its name. Nothing changes before you start a server with it (pond up --ordering NAME). The
    exit code is 1 where it is not better than the default ordering in both windows of the second half.

    \b
    pond history export jobs.csv
    pond learn --format native --jobs jobs.csv --cluster 4x8
    pond learn --format native --jobs jobs.csv --cluster 4x8 --judge learned:…
    """
    require_simulator()
    from millpond.simulation.learning import learner_on, windows_of
    from millpond.simulation.scenario import read_world

    scenario = scenario_of(**options)
    if scenario.packs:
        raise InvalidInputError("pods that stay for ever have no order", "give a trace with durations")
    try:
        windows = windows_of(read_world(scenario))
        compile_kernels(scenario.seeded())
        with learner_on(windows, scenario.seeded(), workers or os.cpu_count() or 1) as learner:
            if judge is None:
                with progress_bar("rounds") as progress:
                    judge = learner.learn(rounds, samples, seed, lambda done: progress(done, rounds))
            judgement = learner.judge(judge, PEERS)
    except KeyboardInterrupt:
        say("interrupted; nothing was learnt")
        return INTERRUPTED
    _print(judgement)
    if not judgement.wins:
        say("it is not better than the default ordering in each later window: keep that")
    return 0 if judgement.wins else NOT_BETTER


def _print(judgement: Judgement) -> None:
    """The later windows, an ordering in each line, and then the name."""
    count = len(judgement.rows["default"])
    columns = [Column("ORDERING")]
    for number in range(count):
        columns += [Column(f"SLOWDOWN {number + 1}", right=True), Column(f"COMPLETION {number + 1}", right=True)]
    show(
        columns,
        [
            [
                without_weights(name),
                *(text for each in outcomes for text in (f"{each.slowdown:,.2f}", f"{each.jct_s:,.0f} s")),
            ]
            for name, outcomes in judgement.rows.items()
        ],
    )
    click.echo(judgement.ordering)
