"""``pond learn``: what it prints, and that a correction which does harm later is not recommended."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from millpond.client.cli.commands.simulation.learn import command
from millpond.model.errors import InvalidInputError, MillpondError
from millpond.model.policies import LEARNED_FIGURES, learned_name
from millpond.simulation.learning import Judgement, WindowOutcome, windows_of
from millpond.simulation.scenario import Scenario, read_world

CROWDED = ("--format", "synthetic", "--jobs", "200", "--load", "1.1", "--cluster", "2x8", "--durations", "predicted")
LONG_FIRST = learned_name([3.0 if figure == "length" else 0.0 for figure in LEARNED_FIGURES]).replace("3", "-3")


def learn(*arguments: str, workers: int = 1) -> Result:
    options = [*CROWDED, "--workers", str(workers), *arguments]
    return CliRunner().invoke(command, options, standalone_mode=False)


@pytest.mark.long
def test_what_was_learnt_is_the_last_line() -> None:
    result = learn("--rounds", "1", "--samples", "2", "--seed", "3")
    assert result.exception is None, result.output
    heading, *rows, name = result.stdout.splitlines()
    assert heading.split() == ["ORDERING", "SLOWDOWN", "1", "COMPLETION", "1", "SLOWDOWN", "2", "COMPLETION", "2"]
    assert [row.split()[0] for row in rows] == ["edf", "sjf", "ssf", "default", "learned"]
    assert name.startswith("learned:")


@pytest.mark.long
def test_the_same_trace_and_seed_teach_the_same() -> None:
    first, second = (
        learn("--rounds", "3", "--samples", "4", "--seed", "3", workers=workers).stdout for workers in (1, 2)
    )
    assert first == second


@pytest.mark.long
def test_a_correction_that_does_harm_is_judged_and_not_recommended() -> None:
    result = learn("--judge", LONG_FIRST)
    assert result.return_value == 1
    assert "keep that" in result.stderr
    assert result.stdout.splitlines()[-1] == LONG_FIRST


@pytest.mark.parametrize(
    ("own", "wins"),
    [
        ((WindowOutcome(1.9, 100.0), WindowOutcome(1.9, 100.0)), True),
        ((WindowOutcome(1.9, 100.0), WindowOutcome(1.99, 100.0)), False),
        ((WindowOutcome(1.0, 100.0), WindowOutcome(2.1, 100.0)), False),
        ((WindowOutcome(1.9, 100.0), WindowOutcome(1.9, 101.0)), False),
    ],
    ids=["better in both", "hardly better in one", "worse in one", "better for short jobs alone"],
)
def test_only_what_is_better_in_each_later_window_wins(own: tuple[WindowOutcome, ...], wins: bool) -> None:
    assert Judgement("x", {"default": (WindowOutcome(2.0, 100.0),) * 2, "x": own}).wins is wins


def test_windows_are_parts_of_the_trace_one_after_the_other() -> None:
    world = read_world(Scenario("synthetic", "403", cluster="2x8"))
    windows = windows_of(world)
    assert [entry for window in windows for entry in window.workload.jobs] == list(world.workload.jobs)
    assert [len(window.workload.jobs) for window in windows] == [100, 101, 101, 101]


def test_too_few_jobs_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="too few"):
        windows_of(read_world(Scenario("synthetic", "199", cluster="2x8")))


def test_pods_that_stay_for_ever_are_refused() -> None:
    data = Path(__file__).parent.parent / "data"
    files = ("--format", "openb", "--nodes", str(data / "openb_nodes.csv"), "--jobs", str(data / "openb_pods.csv"))
    with pytest.raises(MillpondError, match="no order"):
        CliRunner().invoke(command, files, standalone_mode=False, catch_exceptions=False)
