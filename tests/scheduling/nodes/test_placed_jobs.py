"""Jobs are found by the nodes of their tasks; that a look at all tasks finds the same, the walks of the core check."""

from __future__ import annotations

from worlds import World, machine, single

from millpond.model.events import NodeJoined, NodeLost


def test_a_job_is_found_where_it_was_last_until_it_is_forgotten() -> None:
    world = World(machine("a", 1))
    world.submit(single("one"))
    assert world.core.jobs_on("a") == {"one"}
    world.tell(NodeLost(world.now, "a"))
    assert world.core.jobs_on("a") == {"one"}
    world.tell(NodeJoined(world.now, machine("b", 1)))
    world.go_to(world.now + 1.0)
    assert (world.core.jobs_on("a"), world.core.jobs_on("b")) == (set(), {"one"})
    world.end("one")
    assert world.core.jobs_on("b") == {"one"}
    world.core.forget("one")
    assert world.core.jobs_on("b") == set()
