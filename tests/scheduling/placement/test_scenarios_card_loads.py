"""What is measured of cards decides where work goes that is spread; what came since counts by an estimate."""

from __future__ import annotations

from worlds import World, machine, restarted, single

from millpond.model.decisions import Start
from millpond.model.events import CardLoad, JobSubmitted, LoadSampled, PolicyChanged
from millpond.scheduling.settings import Settings

SPREAD = Settings(placement="spread")


def card_of(world: World, job: str) -> str:
    (task,) = world.core.jobs[job].tasks
    assert task.placement is not None
    (grant,) = task.placement.grants
    return grant.device


def measure(world: World, node: str, *cards: CardLoad) -> None:
    world.tell(LoadSampled(world.now, node, sum(card.load_milli for card in cards) // len(cards), cards))


def test_a_slice_goes_to_the_least_used_card_also_within_a_node() -> None:
    world = World(machine("a", 2), machine("b", 2), settings=SPREAD)
    measure(world, "a", CardLoad("a-0", 900, 0), CardLoad("a-1", 100, 0))
    measure(world, "b", CardLoad("b-0", 400, 0), CardLoad("b-1", 500, 0))
    world.submit(single("job", 0.25))
    assert card_of(world, "job") == "a-1"


def test_cards_that_were_never_measured_count_as_used_to_what_is_held_of_them() -> None:
    world = World(machine("a", 2), machine("b", 2), settings=SPREAD)
    world.submit(*(single(f"job-{number}", 0.25) for number in range(4)))
    assert {card_of(world, f"job-{number}") for number in range(4)} == {"a-0", "a-1", "b-0", "b-1"}


def test_work_of_one_cycle_is_spread_although_nothing_of_it_was_measured_yet() -> None:
    world = World(machine("a", 3), settings=SPREAD)
    measure(world, "a", *(CardLoad(f"a-{number}", 100 * number, 0) for number in range(3)))
    world.submit(*(single(f"job-{number}", 0.15) for number in range(4)))
    # Each counts 150 until it is measured: 0, then 100 beside 150, then 150 beside 200, then 200 beside 250 and 300.
    assert [card_of(world, f"job-{number}") for number in range(4)] == ["a-0", "a-1", "a-0", "a-2"]


def test_new_work_counts_as_much_of_what_it_holds_as_work_of_its_pool_was_measured_to_use() -> None:
    world = World(machine("a", 2), settings=SPREAD)
    for _ in range(200):
        measure(world, "a", CardLoad("a-0", 50, 500), CardLoad("a-1", 100, 1_000))
    measure(world, "a", CardLoad("a-0", 200, 0), CardLoad("a-1", 0, 0))
    world.submit(*(single(f"job-{number}", 0.25) for number in range(4)))
    assert {card_of(world, f"job-{number}") for number in range(4)} == {"a-1"}  # a tenth of what they hold


def test_work_that_was_measured_counts_no_more_by_estimate() -> None:
    world = World(machine("a", 2), settings=SPREAD)
    world.submit(single("idle", 0.5))
    measure(world, "a", CardLoad("a-0", 0, 500), CardLoad("a-1", 100, 0))
    world.submit(single("next", 0.25))
    assert card_of(world, "next") == "a-0"


def test_work_that_has_left_counts_no_more_before_the_next_measurement() -> None:
    world = World(machine("a", 2), settings=SPREAD)
    world.submit(single("old", 0.5))
    measure(world, "a", CardLoad("a-0", 500, 500), CardLoad("a-1", 300, 0))
    world.end("old")
    world.submit(single("next", 0.25))
    assert card_of(world, "next") == "a-0"


def test_a_start_tells_the_load_that_counted() -> None:
    for placement, load in (("spread", 300), ("default", None)):
        world = World(machine("a", 1), settings=Settings(placement=placement))
        measure(world, "a", CardLoad("a-0", 300, 0))
        world.submit(single("job", 0.5))
        (start,) = world.of_kind(Start)
        assert start.load_milli == load


def test_measured_loads_and_what_was_learnt_of_them_outlive_a_restart_and_a_policy() -> None:
    world = World(machine("a", 2), machine("b", 1), settings=SPREAD)
    world.submit(single("old", 0.5))
    measure(world, "a", CardLoad("a-0", 100, 250), CardLoad("a-1", 90, 0))
    twins = [world.core.fork(), restarted(world.core)]
    assert [twin.snapshot()["loads"] for twin in twins] == [world.core.snapshot()["loads"]] * 2
    known = world.core.snapshot()["loads"]
    for placement in ("default", "spread"):
        world.tell(PolicyChanged(world.now, "default", placement, preempt=False, reserve=True))
    assert world.core.snapshot()["loads"] == known
    for core in (world.core, *twins):
        for number in range(3):
            core.handle(JobSubmitted(world.now, single(f"job-{number}", 0.25)))
    decided = world.tick()
    assert len(decided) == 3
    assert [twin.decide(world.now) for twin in twins] == [decided, decided]


def test_what_is_measured_of_machines_and_cards_that_are_not_there_is_ignored() -> None:
    world = World(machine("a", 1), settings=SPREAD)
    before = world.core.snapshot()["loads"]
    measure(world, "gone", CardLoad("gone-0", 500, 0))
    measure(world, "a", CardLoad("b-0", 500, 0))
    assert world.core.snapshot()["loads"] == before == {"cards": [], "used_part": {}}
