"""Other policies take over from those that a scheduler began with: work goes on, who waits is lined up anew."""

from __future__ import annotations

import json

import pytest
from worlds import World, asks, elastic, gang, machine, queue, single

from ledgers import check_everything
from millpond.model.decisions import Start
from millpond.model.errors import InvalidInputError
from millpond.model.events import PolicyChanged
from millpond.model.policies import ORDERINGS, PLACEMENTS
from millpond.model.policy_trials import ClusterPolicies, PolicyTrial
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import PreemptionCost, Settings


def to(world: World, ordering: str = "default", placement: str = "default", preempt: bool = False) -> None:
    """Change the policies."""
    world.tell(PolicyChanged(world.now, ordering, placement, preempt, True))
    world.settle()


def test_who_waits_goes_by_the_new_ordering_from_then_on() -> None:
    world = World(machine("a", 1), settings=Settings(ordering="fifo"))
    world.submit(single("now"), lasting=100)
    world.submit(single("long"), lasting=1_000, known=True)
    world.go_to(1)
    world.submit(single("short"), lasting=10, known=True)
    to(world, "sjf")
    assert world.running() == {"now"}
    world.go_to(105)
    assert world.running() == {"short"}


def test_the_new_ordering_may_displace_what_the_old_one_let_run() -> None:
    free = PreemptionCost(0.0, 0.0)
    world = World(machine("a", 1), settings=Settings(ordering="fifo", preemption_cost=free))
    world.submit(single("long"), lasting=1_000, known=True)
    world.submit(single("short"), lasting=10, known=True)
    world.go_to(5)
    assert world.running() == {"long"}
    to(world, "srtf", preempt=True)
    assert world.running() == {"short"}


def test_replanning_counts_an_elastic_gang_that_waits_as_large_as_it_can_be() -> None:
    world = World(machine("a", 4), settings=Settings(ordering="tiresias", preempt=True))
    world.submit(single("first", 3))
    world.submit(elastic("grows", (1, 4, 4), asks(1)))
    assert world.running() == {"first", "grows"}


def test_replanning_counts_an_elastic_gang_that_runs_as_large_as_it_is() -> None:
    settings, bounded = Settings(ordering="tiresias", preempt=True), queue("bounded", limit=2)
    world = World(machine("a", 4), settings=settings, queues=(bounded,))
    world.submit(elastic("grows", (1, 4, 4), asks(1), queue="bounded"))
    world.submit(single("second", 2))
    assert world.running() == {"grows", "second"}


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("begun", ["default", "tiresias", "fair"])
def test_work_goes_on_through_a_change_and_nothing_is_counted_twice(begun: str, ordering: str) -> None:
    world = World(machine("a", 4), machine("b", 4), settings=Settings(ordering=begun))
    world.submit(gang("g", 2, asks(2)), single("x", 2), lasting=500)
    world.submit(*(single(f"w{number}", 4) for number in range(3)), lasting=50)
    world.go_to(20)
    for name, placement in ((ordering, "best-fit"), (begun, "default"), (ordering, "fgd")):
        to(world, name, placement)
        check_everything(world.core)
        assert {"g", "x"} <= world.running()
    world.go_to(10_000)
    check_everything(world.core)
    assert {len(world.of_kind(Start, job)) for job in ("g", "x", "w0", "w1", "w2")} == {1}


@pytest.mark.parametrize("ordering", ["edf", "srtf"])
def test_what_was_learnt_of_lengths_is_known_to_the_new_ordering(ordering: str) -> None:
    world = World(machine("a", 4), settings=Settings(ordering="default"))
    world.submit(*(single(f"s{number}") for number in range(40)), lasting=100)
    world.go_to(1_200)
    world.submit(single("running", 4), lasting=100)
    to(world, ordering)
    world.submit(single("next", 4))
    start = world.why("next").start
    assert start is not None
    assert start.likely_at is not None
    assert start.likely_at < world.now + 200


def test_a_scheduler_restored_after_a_change_goes_on_as_the_one_that_changed() -> None:
    world = World(machine("a", 2), settings=Settings(ordering="fifo"))
    world.submit(single("x", 2), *(single(f"w{number}") for number in range(3)), lasting=100)
    to(world, "fair", "best-fit")
    twin = Scheduler.restore(world.core.snapshot())
    assert twin.settings == world.core.settings
    assert twin.snapshot() == world.core.snapshot()


@pytest.mark.parametrize(("ordering", "placement"), [("luck", "default"), ("fifo", "anywhere")])
def test_a_policy_nobody_knows_is_refused_and_changes_nothing(ordering: str, placement: str) -> None:
    world = World(machine("a", 1))
    with pytest.raises(InvalidInputError, match="choose one of"):
        world.core.handle(PolicyChanged(0.0, ordering, placement, False, True))
    assert world.core.settings == Settings()
    assert set(PLACEMENTS) > {"default"}


def test_a_trial_of_policies_outlives_a_snapshot_decides_nothing_and_ends_with_the_next_change() -> None:
    world = World(machine("a", 1))
    trial = PolicyTrial(0.0, ClusterPolicies("default", "default", preempt=False, reserve=True), 1.2)
    world.tell(PolicyChanged(0.0, "sjf", "default", False, True, trial, "it was better"))
    assert world.core.settings == Settings(ordering="sjf", trial=trial)
    plain = json.loads(json.dumps(world.core.snapshot()))
    assert Scheduler.restore(plain).settings == world.core.fork().settings == world.core.settings
    to(world, "sjf")
    assert world.core.settings == Settings(ordering="sjf")
