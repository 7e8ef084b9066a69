"""What a queue is guaranteed it gets, whatever stands above it in the tree."""

from __future__ import annotations

import pytest
from worlds import World, machine, queue, single

from benchmarks.tenancy.guarantee_walk import GuaranteeWalk
from millpond.model.decisions import Stop
from millpond.model.states import JobState
from seeds import few_then_many

POOL = (machine("n1", 4),)


def test_a_group_that_may_not_borrow_takes_back_what_a_queue_below_it_is_guaranteed() -> None:
    world = World(
        *POOL, queues=(queue("lab", borrows=False), queue("speech", parent="lab", guarantee=2), queue("guest"))
    )
    world.submit(single("big", 4, queue="guest"))
    world.submit(single("own", 2, queue="speech"))
    assert world.running() == {"own"}
    assert len(world.of_kind(Stop)) == 1


def test_a_queue_takes_its_own_back_inside_a_group_that_may_not_exceed_its_guarantee() -> None:
    world = World(
        *POOL,
        queues=(
            queue("lab", guarantee=2, borrows=False),
            queue("speech", parent="lab", guarantee=1),
            queue("vision", parent="lab"),
        ),
    )
    world.submit(single("one", queue="vision"), single("two", queue="vision"))
    world.submit(single("own", queue="speech"))
    assert world.running() == {"one", "own"}
    world.submit(single("more", queue="speech"))
    assert world.running() == {"one", "own"}
    assert "queue lab may not borrow" in world.why("more").summary


def test_what_is_not_preemptible_leaves_the_queues_beside_it_what_they_are_guaranteed() -> None:
    world = World(
        machine("n1", 4),
        queues=(
            queue("lab", guarantee=4),
            queue("speech", parent="lab", guarantee=2),
            queue("vision", parent="lab"),
        ),
    )
    refusal = world.core.check(single("wide", 4, queue="vision", preemptible=False))
    assert refusal is not None
    assert "beside those of the queues below it" in refusal.summary
    world.submit(*(single(f"kept{number}", queue="vision", preemptible=False) for number in range(3)))
    assert world.running() == {"kept0", "kept1"}
    assert "what the guarantee of queue lab leaves" in world.why("kept2").summary
    world.submit(single("own", 2, queue="speech"))
    assert world.running() == {"kept0", "kept1", "own"}
    world.submit(single("lent", queue="vision"))
    assert world.state("lent") is JobState.QUEUED


@pytest.mark.parametrize("seed", few_then_many([27, 111], range(1, 27)))
def test_in_random_worlds_a_guarantee_is_met_after_one_round_and_nothing_is_borrowed_for_good(seed: int) -> None:
    walk = GuaranteeWalk(seed)
    for _ in range(50):
        walk.step()
        assert walk.wrong == []


@pytest.mark.parametrize("seed", few_then_many([111], [*range(100, 110), 129, 251]))
def test_in_random_worlds_gangs_of_which_a_core_stays_take_no_more_than_that_of_guarantees(seed: int) -> None:
    walk = GuaranteeWalk(seed, with_cores=True)
    for _ in range(50):
        walk.step()
        assert walk.wrong == []


@pytest.mark.parametrize("seed", few_then_many([8], [21, 22, 53, *range(60, 72)]))
def test_in_random_worlds_guarantees_of_single_models_are_met_as_well(seed: int) -> None:
    walk = GuaranteeWalk(seed, with_models=True)
    for _ in range(50):
        walk.step()
        assert walk.wrong == []
