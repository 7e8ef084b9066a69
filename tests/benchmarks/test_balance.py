"""The world of the benchmark of balance: what is true decides nothing before it was measured."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest

from benchmarks.traces.balance import ROWS, STEP_S, SharedCardsWorld, lost_of
from millpond.model.decisions import Start, Stop
from millpond.model.reasons import Cause

WITH_MOVES = ROWS["by load, with moves"]


def pods(busy: Iterator[float], steps: int) -> np.ndarray:
    """(pods, steps) pods that are as busy as this all the time, and come one by one."""
    rows = []
    for number, use in enumerate(busy):
        row = np.full(steps, use)
        row[:number] = np.nan
        rows.append(row)
    return np.array(rows)


def test_demand_beyond_a_card_is_lost() -> None:
    assert lost_of(np.array([[150.0, 50.0], [0.0, 100.0]])) == pytest.approx(100.0 * 50 / 300)
    assert lost_of(np.zeros((1, 1))) == 0.0


def test_services_of_which_some_are_busy_for_long_are_levelled_by_measuring_and_moving_them() -> None:
    draw = random.Random(3)
    demand = pods((draw.choice((5.0, 5.0, 90.0)) for _ in range(24)), 80)
    lost = {}
    for name, row in ROWS.items():
        world = SharedCardsWorld(demand, 12, row, 1)
        world.play()
        lost[name] = lost_of(world.used[:, 40:])
    assert lost["by load"] < 0.5 * min(lost["by count"], lost["random"])
    assert lost["by load, with moves"] <= lost["by load"]


def test_what_is_true_and_was_not_measured_yet_changes_no_decision() -> None:
    draw = random.Random(5)
    busy = [draw.choice((5.0, 90.0)) for _ in range(12)]
    before = pods(iter(busy), 60)
    other = before.copy()
    other[:, 40:] = np.where(np.isnan(other[:, 40:]), np.nan, 95.0 - other[:, 40:])
    logs = []
    for demand in (before, other):
        world = SharedCardsWorld(demand, 6, WITH_MOVES, 1)
        world.play(40)
        logs.append([repr(each) for each in world.decisions])
        assert world.now == pytest.approx(40 * STEP_S)
    assert logs[0] == logs[1]
    assert any("Start" in each for each in logs[0])


def test_a_world_whose_cards_are_not_measured_moves_nothing() -> None:
    world = SharedCardsWorld(pods(iter([90.0] * 6), 40), 3, ("spread", False, True), 1)
    world.play()
    assert {type(each) for each in world.decisions if each.cause is not Cause.BALANCED} == {Start}
    assert not [each for each in world.decisions if isinstance(each, Stop)]
