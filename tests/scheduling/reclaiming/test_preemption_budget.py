"""What displacing equals may cost is earned by what runs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import World, machine, single

from millpond.model.events import DurationPredicted, JobSubmitted
from millpond.model.workloads import Checkpoint, CheckpointMode, Priority
from millpond.scheduling.ordering.default import COST_WEIGHT
from millpond.scheduling.ordering.running import charge_of
from millpond.scheduling.reclaiming.preemption_budget import (
    PREEMPTION_BUDGET,
    SAVED_UP_S,
    PreemptionBudget,
    cost_of,
)
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import Settings

SAVES = Checkpoint(CheckpointMode.SIGNAL)


def world_with_a_long_job(checkpoint: Checkpoint) -> World:
    world = World(machine("n", 4), settings=Settings(preempt=True))
    world.submit(single("long", 4, checkpoint=checkpoint), lasting=100_000.0, known=True)
    return world


def test_a_short_job_displaces_a_long_one_once_the_cluster_has_earned_the_restart() -> None:
    world = world_with_a_long_job(SAVES)
    world.go_to(1_000.0)
    world.submit(single("early", 4), lasting=10.0, known=True)
    assert world.running() == {"long"}
    world.go_to(40.0 / PREEMPTION_BUDGET + 10.0)
    world.submit(single("late", 4), lasting=10.0, known=True)
    assert world.running() == {"early"}


def test_work_that_saves_nothing_is_not_thrown_away_for_a_short_job() -> None:
    world = world_with_a_long_job(Checkpoint())
    world.go_to(20_000.0)
    world.submit(single("short", 4), lasting=10.0, known=True)
    assert world.running() == {"long"}


def test_a_preemption_is_paid_for_once() -> None:
    world = world_with_a_long_job(SAVES)
    world.go_to(10_000.0)
    world.submit(single("short", 4), lasting=10.0, known=True)
    assert world.running() == {"short"}
    assert world.core._state.preemption_budget.left == pytest.approx(PREEMPTION_BUDGET * 40_000.0 - 160.0)


def test_what_one_preemption_leaves_of_the_budget_is_enough_for_a_cheaper_one_beside_it() -> None:
    world = World(machine("a", 2), machine("b", 2), machine("c", 1), settings=Settings(preempt=True))
    for name, cards, length in (("dear", 2, 1_000_000.0), ("dearer", 2, 2_000_000.0), ("cheap", 1, 10_000.0)):
        world.submit(single(name, cards, checkpoint=SAVES), lasting=length, known=True)
    world.go_to(130.0 / (5 * PREEMPTION_BUDGET))  # a card costs 40
    for name, cards, length in (("two", 2, 10.0), ("one", 1, 30.0)):
        world.tell(JobSubmitted(world.now, single(name, cards)))
        world.tell(DurationPredicted(world.now, name, length, length))
    world.settle()
    assert world.running() == {"two", "one", "dear"}


def test_a_restored_scheduler_has_the_same_budget() -> None:
    world = world_with_a_long_job(SAVES)
    world.go_to(10_000.0)
    restored = Scheduler.restore(world.core.snapshot())._state.preemption_budget
    assert (restored.left, restored.since) == (PREEMPTION_BUDGET * 40_000.0, 10_000.0)


def test_no_more_is_saved_up_than_a_day_brings() -> None:
    budget = PreemptionBudget()
    budget.earn(4_000, 10 * SAVED_UP_S)
    assert budget.left == pytest.approx(PREEMPTION_BUDGET * 4 * SAVED_UP_S)
    budget.earn(0, 11 * SAVED_UP_S)
    assert budget.left == pytest.approx(PREEMPTION_BUDGET * 4 * SAVED_UP_S)


@given(st.integers(1, 4), st.floats(1.0, 50_000.0), st.booleans(), st.booleans())
@settings(max_examples=25, derandomize=True, deadline=None)
def test_the_budget_and_the_key_count_the_same_cost_of_a_preemption(
    cards: int, run_s: float, saves: bool, catches_up: bool
) -> None:
    world = World(machine("n", cards), settings=Settings(preempt=True))
    world.submit(single("runs", cards, checkpoint=SAVES if saves else Checkpoint()))
    if catches_up:
        world.go_to(10.0)
        world.submit(single("high", cards, priority=Priority.HIGH))
        world.end("high")
    world.go_to(world.now + run_s)
    state, record = world.core._state, world.core.jobs["runs"]
    assert (record.debt_s > 0.0) == catches_up
    cost = cost_of(record, state.settings.preemption_cost, state.now)
    assert charge_of(state.roster.live, record.slot, state.now) == pytest.approx(COST_WEIGHT * cost)
    assert state.ordering.costs(state.roster.live, state.now)[record.slot] == pytest.approx(cost)


@pytest.mark.parametrize("gpus", [0, 0.002, 0.01])
def test_what_work_of_hardly_a_card_takes_of_the_budget_is_not_overestimated(gpus: float) -> None:
    world = World(machine("n", 1), settings=Settings(preempt=True))
    world.submit(single("runs", gpus))
    world.go_to(1_000.0)
    state, record = world.core._state, world.core.jobs["runs"]
    costs = state.ordering.costs(state.roster.live, state.now)
    assert costs[record.slot] <= cost_of(record, state.settings.preemption_cost, state.now)
