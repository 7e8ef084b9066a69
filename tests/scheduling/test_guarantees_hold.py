"""What a queue is guaranteed it gets, whatever stands above it in the tree."""

from __future__ import annotations

from worlds import World, machine, queue, single

from millpond.model.decisions import Stop

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
