"""Weights: what queues get beside each other, whatever their users and their keys."""

from __future__ import annotations

from collections import Counter

import pytest
from worlds import World, machine, queue, single

from millpond.model.decisions import Stop
from millpond.model.events import PolicyChanged, UsageHalfLifeChanged
from millpond.model.resources import Amount
from millpond.model.tenancy.tenants import USAGE_HALF_LIFE_S
from millpond.model.units import DAY_S
from millpond.model.workloads import Checkpoint, CheckpointMode, Job
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import PreemptionCost, Settings
from millpond.scheduling.tenancy.fairness import DecayedUsage

HOUR_S = 3_600.0
SAVES = Checkpoint(CheckpointMode.SIGNAL)
THREE_TO_ONE = (queue("a", weight=3.0), queue("b"))


def jobs(leaf: str, count: int, users: int = 1) -> list[Job]:
    return [single(f"{leaf}{i}", queue=leaf, user=f"{leaf}-{i % users}") for i in range(count)]


def running_by_queue(world: World) -> Counter[str]:
    return Counter(world.core.jobs[job].queue for job in world.running())


@pytest.mark.parametrize("ordering", ["fair", "default"])
@pytest.mark.parametrize("users", [1, 8])
def test_one_cycle_that_fills_the_cluster_divides_it_by_weight(ordering: str, users: int) -> None:
    world = World(machine("n", 8), settings=Settings(ordering=ordering), queues=THREE_TO_ONE)
    world.submit(*jobs("b", 8, users), *jobs("a", 8))
    assert running_by_queue(world)["a"] in ((6,) if ordering == "fair" else (5, 6))  # in rounds, to within a job


def test_a_queue_with_many_below_it_gets_no_more_than_its_own_weight() -> None:
    below = [queue(f"x{i}", parent="x") for i in range(3)]
    world = World(machine("n", 6), settings=Settings(ordering="fair"), queues=(queue("x"), *below, queue("y")))
    world.submit(*(job for leaf in below for job in jobs(leaf.name, 6)), *jobs("y", 6))
    assert running_by_queue(world) == {"x0": 1, "x1": 1, "x2": 1, "y": 3}


def test_the_shorter_job_goes_first_until_its_queue_has_had_a_round_more() -> None:
    world = World(machine("n", 1), settings=Settings(), queues=(queue("a"), queue("b")))
    world.submit(single("b0", queue="b"), lasting=5 * HOUR_S, known=True)
    for number in range(20):
        world.submit(single(f"a{number}", queue="a"), lasting=HOUR_S, known=True)
    world.submit(single("b1", queue="b"), lasting=2 * HOUR_S, known=True)
    world.go_to(5.5 * HOUR_S)
    assert world.running() == {"a0"}
    world.go_to(9.5 * HOUR_S)
    assert world.running() == {"a4"}
    world.go_to(20 * HOUR_S)
    started = [each.job for each in world.decisions if hasattr(each, "placements")]
    assert 4 < started.index("b1") - started.index("a0") < 8


def test_a_short_job_displaces_no_work_of_a_queue_that_has_had_less() -> None:
    free = Settings(preempt=True, preemption_cost=PreemptionCost(0.0, 0.0))
    world = World(machine("n", 2), settings=free, queues=(queue("a"), queue("b")))
    world.submit(single("a0", 2, queue="a"), lasting=10 * HOUR_S, known=True)
    world.go_to(10 * HOUR_S)
    world.submit(single("b0", 2, queue="b", checkpoint=SAVES), lasting=10 * HOUR_S, known=True)
    world.submit(single("a1", 2, queue="a"), lasting=60.0, known=True)
    assert world.running() == {"b0"}
    world.submit(single("b1", 2, queue="b"), lasting=60.0, known=True)
    assert world.running() == {"b1"}


def test_where_work_is_displaced_a_queue_of_small_jobs_that_is_ahead_leaves_room_for_the_wide_job_of_another() -> None:
    world = World(machine("n", 2), settings=Settings(preempt=True), queues=(queue("a"), queue("b")))
    world.submit(single("half", queue="a"), lasting=HOUR_S / 2, known=True)
    for number in range(20):
        world.submit(single(f"a{number}", queue="a"), lasting=HOUR_S, known=True)
    world.go_to(4.2 * HOUR_S)
    world.submit(single("wide", 2, queue="b"), lasting=10 * HOUR_S, known=True)
    assert "wide" not in world.running()  # its key is higher than those of all that run
    world.go_to(5.5 * HOUR_S)
    assert world.running() == {"wide"}


def test_queues_in_one_round_are_kept_no_room_where_work_is_displaced() -> None:
    world = World(machine("n", 2), settings=Settings(preempt=True), queues=(queue("a"), queue("b")))
    for number in range(6):
        world.submit(single(f"a{number}", queue="a"), lasting=600.0, known=True)
    world.submit(single("wide", 2, queue="b"), lasting=10 * HOUR_S, known=True)
    world.go_to(601.0)
    assert world.running() == {"a2", "a3"}


def test_who_starts_by_the_turn_of_its_queue_does_not_leave_for_one_that_had_its_turn_later() -> None:
    free = Settings(preempt=True, preemption_cost=PreemptionCost(0.0, 0.0))
    world = World(machine("n", 2), settings=free, queues=(queue("a"), queue("b")))
    world.submit(single("b0", queue="b"), lasting=600.0, known=True)
    world.submit(single("b1", queue="b"), lasting=1_200.0, known=True)
    world.submit(single("a0", queue="a"), lasting=10 * HOUR_S, known=True)
    world.submit(single("b2", queue="b"), lasting=HOUR_S, known=True)
    world.go_to(700.0)
    assert world.running() == {"a0", "b1"}
    assert world.of_kind(Stop) == []


@pytest.mark.parametrize(("half_life_s", "first"), [(USAGE_HALF_LIFE_S, "b"), (HOUR_S, "a")])
def test_how_soon_past_usage_is_forgotten_decides_whose_turn_it_is(half_life_s: float, first: str) -> None:
    """Queue a had the machine for ten hours, b for two after it: with a short memory b has had more of late."""
    world = World(machine("n", 1), settings=Settings(ordering="fair"), queues=(queue("a"), queue("b")))
    world.tell(UsageHalfLifeChanged(0.0, half_life_s))
    world.submit(single("a0", queue="a"), lasting=10 * HOUR_S)
    world.submit(single("b0", queue="b"), lasting=2 * HOUR_S)
    world.go_to(11 * HOUR_S)
    world.submit(single("a1", queue="a"), single("b1", queue="b"), lasting=HOUR_S)
    world.go_to(12.5 * HOUR_S)
    assert world.running() == {f"{first}1"}


def test_another_half_life_changes_no_share_at_that_instant() -> None:
    usage, whole = DecayedUsage(USAGE_HALF_LIFE_S), Amount(1_000, 1_000, 1_000)
    usage.change(["a"], Amount(1_000, 500, 0), 1, 0.0)
    usage.change(["a"], Amount(1_000, 500, 0), -1, DAY_S)
    before = usage.dominant_shares(["a"], whole, 2 * DAY_S)
    usage.change_half_life(DAY_S, 2 * DAY_S)
    assert usage.dominant_shares(["a"], whole, 2 * DAY_S) == pytest.approx(before)
    assert usage.dominant_shares(["a"], whole, 3 * DAY_S) == pytest.approx([before[0] / 2])


def test_a_half_life_outlives_other_policies_and_restarts() -> None:
    world = World(machine("n", 1), settings=Settings(ordering="fair"))
    world.tell(UsageHalfLifeChanged(0.0, DAY_S))
    world.tell(PolicyChanged(0.0, "default", "default", preempt=False, reserve=True))
    again = Scheduler.restore(world.core.snapshot())
    assert (world.core.settings.usage_half_life_s, again.settings.usage_half_life_s) == (DAY_S, DAY_S)
