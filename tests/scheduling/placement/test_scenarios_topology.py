"""Room made for gangs that must lie together lies together, in the cheapest place that was found."""

from __future__ import annotations

from typing import Any

from worlds import World, asks, elastic, gang, machine, queue, single

from ledgers import check_everything
from millpond.model.decisions import Stop
from millpond.model.hardware.nodes import Node
from millpond.model.hardware.topology import Level
from millpond.model.reasons import Cause
from millpond.model.states import JobState
from millpond.model.workloads import Job, Priority


def in_racks(*names: str, cards: int = 2, **fields: Any) -> list[Node]:
    """Machines named after their racks: ``a0`` and ``a1`` stand in rack a."""
    return [machine(name, cards, rack_name=name[0], **fields) for name in names]


def together(id_: str, tasks: int, gpus: float, level: Level = Level.RACK, **fields: Any) -> Job:
    """A gang of the high class that must lie within one rack or node."""
    defaults: dict[str, Any] = {"priority": Priority.HIGH} | fields
    return gang(id_, tasks, asks(gpus), together=level, together_required=True, **defaults)


def filled(*nodes: Node, classes: dict[str, Priority] | None = None) -> World:
    """A world in which a job of its own fills every node; it is named after the node."""
    world = World(*nodes)
    for node in nodes:
        priority = (classes or {}).get(node.name, Priority.LOW)
        world.submit(gang(node.name, 1, asks(len(node.devices), extras=node.extras), priority=priority))
        world.go_to(world.now + 10)
    return world


def named(nodes: list[Node]) -> list[Node]:
    """Each with a resource of its own name, so that a test can put a job on it."""
    return [Node(**{**{f: getattr(n, f) for f in n.__slots__}, "extras": ((n.name, 1),)}) for n in nodes]


def test_the_rack_whose_work_has_least_to_lose_is_cleared() -> None:
    world = filled(*named(in_racks("a0", "b0", "a1", "b1", "c0")))
    world.submit(together("high", 2, 2))
    assert sorted(world.nodes_of("high")) == ["b0", "b1"], "they began later than those in rack a"
    assert sorted(stop.job for stop in world.of_kind(Stop)) == ["b0", "b1"]
    check_everything(world.core)


def test_a_rack_with_work_of_the_lowest_class_alone_goes_before_one_with_better_work() -> None:
    world = filled(*named(in_racks("a0", "a1", "b0", "b1")), classes={"b1": Priority.NORMAL})
    world.submit(together("high", 2, 2))
    assert sorted(world.nodes_of("high")) == ["a0", "a1"]


def test_free_room_in_a_rack_is_used_before_anybody_is_ended_there() -> None:
    world = filled(*named(in_racks("a0", "a1", "b0", "b1")))
    world.end("a0")
    world.submit(together("high", 2, 2))
    assert [stop.job for stop in world.of_kind(Stop)] == ["a1"]


def test_a_rack_that_is_too_small_is_not_cleared() -> None:
    world = filled(*named(in_racks("a0", "b0", "b1", "b2")))
    world.submit(together("high", 3, 2))
    assert sorted(world.nodes_of("high")) == ["b0", "b1", "b2"]


def test_a_gang_that_must_share_a_node_clears_one_node() -> None:
    world = World(*in_racks("a0", "a1", cards=4))
    world.submit(*(single(job, 2, priority=Priority.LOW) for job in "wxyz"))
    world.go_to(100)
    world.submit(together("high", 2, 2, Level.NODE))
    assert len(set(world.nodes_of("high"))) == 1
    assert len(world.of_kind(Stop)) == 2


def test_whole_nodes_of_one_rack_are_taken_back_by_a_queue_within_its_guarantee() -> None:
    nodes = in_racks("a0", "b0", "b1", cards=8)
    world = World(*nodes, queues=[queue("team", guarantee=16), queue("other")])
    world.submit(*(single(f"x{number}", 8, queue="other") for number in range(3)))
    world.go_to(100)
    world.submit(together("mine", 2, 8, queue="team", priority=Priority.NORMAL))
    assert sorted(world.nodes_of("mine")) == ["b0", "b1"]
    assert [stop.cause for stop in world.of_kind(Stop)] == [Cause.RECLAIMED] * 2


def test_work_that_is_protected_keeps_its_rack_from_being_cleared() -> None:
    world = World(*in_racks("a0", "a1", "b0", "b1"))
    world.submit(
        *(single(f"x{number}", 2, priority=Priority.LOW, preemptible=number not in (0, 3)) for number in range(4))
    )
    world.go_to(100)
    spread = {world.nodes_of(job)[0][0] for job in ("x0", "x3")}
    assert spread == {"a", "b"}
    world.submit(together("high", 2, 2))
    assert world.of_kind(Stop) == []
    assert world.state("high") is JobState.QUEUED


def test_only_so_many_groups_are_tried_and_those_first_that_look_cheapest() -> None:
    world = World(*(machine(f"n{number}", 2) for number in range(40)))
    world.submit(*(single(f"x{number}", 1, priority=Priority.NORMAL) for number in range(78)))
    world.submit(single("low0", priority=Priority.LOW), single("low1", priority=Priority.LOW))
    world.go_to(100)
    assert world.nodes_of("low0") == world.nodes_of("low1") == ["n39"]
    world.submit(together("high", 2, 1, Level.NODE))
    assert set(world.nodes_of("high")) == {"n39"}
    assert {stop.job for stop in world.of_kind(Stop)} == {"low0", "low1"}


# ---- together if it costs nothing -------------------------------------------------------------------------------


def wishes(tasks: int, gpus: float, level: Level, **fields: Any) -> Job:
    """A gang of the high class that would like to lie together."""
    return gang("high", tasks, asks(gpus), together=level, priority=Priority.HIGH, **fields)


def filled_at_once(*names: str, cards: int = 2) -> World:
    """Every node filled by a job of its own, named after it; all have the same to lose."""
    nodes = named(in_racks(*names, cards=cards))
    world = World(*nodes)
    world.submit(*(gang(n.name, 1, asks(cards, extras=n.extras), priority=Priority.LOW) for n in nodes))
    world.go_to(100)
    return world


def test_among_victims_with_as_much_to_lose_those_in_one_rack_leave_for_a_gang_that_would_like_one() -> None:
    world = filled_at_once("a0", "b0", "b1", "a1")
    world.submit(wishes(2, 2, Level.RACK))
    assert sorted(world.nodes_of("high")) == ["a0", "a1"]
    assert sorted(stop.job for stop in world.of_kind(Stop)) == ["a0", "a1"]


def test_nobody_with_more_to_lose_is_ended_for_a_mere_wish() -> None:
    world = filled(*named(in_racks("a0", "b0", "b1", "a1")))
    world.submit(wishes(2, 2, Level.RACK))
    assert sorted(world.nodes_of("high")) == ["a1", "b1"], "they began last"


def test_free_room_is_used_although_another_rack_could_be_cleared_as_a_whole() -> None:
    world = filled_at_once("a0", "b0", "b1", "c0")
    world.end("c0")
    world.submit(wishes(2, 2, Level.RACK))
    assert [stop.job for stop in world.of_kind(Stop)] == ["a0"]


def test_a_gang_that_would_like_one_node_gets_one_rack_where_a_node_is_dearer() -> None:
    world = filled_at_once("a0", "b0", "b1", "a1")
    world.submit(wishes(4, 1, Level.NODE))
    assert {node[0] for node in world.nodes_of("high")} == {"a"}


def test_a_gang_that_would_like_one_node_gets_it_where_that_ends_nobody_else() -> None:
    world = World(*in_racks("a0", "b0"))
    for name in ("w", "x", "y", "z"):
        world.submit(single(name, priority=Priority.LOW))
    world.go_to(100)
    world.submit(wishes(2, 1, Level.NODE))
    assert len(set(world.nodes_of("high"))) == 1


def test_an_elastic_gang_that_would_like_one_rack_grows_beyond_it_where_it_has_to() -> None:
    world = filled_at_once("a0", "b0", "a1")
    world.submit(elastic("high", (2, 4, 4), asks(1), together=Level.RACK, priority=Priority.HIGH))
    assert len(world.of_kind(Stop)) == 1
    world.end("b0")
    assert len(world.nodes_of("high")) == 4
    assert {node[0] for node in world.nodes_of("high")} == {"a", "b"}


def in_zones(*names: str, cards: int = 8) -> list[Node]:
    """Machines named after their zones, each in a rack of its own."""
    return [machine(name, cards, zone_name=name[0], rack_name=name) for name in names]


def test_a_gang_that_must_lie_in_one_zone_takes_one_that_holds_all_of_it() -> None:
    world = World(*in_zones("a0", "b0", "b1", "c0"))
    world.submit(together("g", 2, 8, Level.ZONE))
    assert sorted(world.nodes_of("g")) == ["b0", "b1"]
    world.submit(together("h", 2, 8, Level.ZONE))
    assert world.state("h") is JobState.QUEUED, "what is free lies in two zones"
    assert "in no one zone" in world.why("h").summary


def test_a_gang_that_no_zone_holds_is_refused_at_once() -> None:
    world = World(*in_zones("a0", "b0"))
    reason = world.core.check(together("g", 2, 8, Level.ZONE))
    assert reason is not None
    assert "tasks in one zone; none takes them even when empty" in reason.summary
    assert world.core.check(together("g", 2, 4, Level.ZONE)) is None


def test_a_zone_is_cleared_for_a_gang_that_must_lie_in_one() -> None:
    world = filled(*named(in_zones("a0", "b0", "b1")))
    world.end("a0")
    world.submit(together("high", 2, 8, Level.ZONE))
    assert sorted(world.nodes_of("high")) == ["b0", "b1"]
    check_everything(world.core)


def test_a_gang_that_would_like_one_zone_takes_one_that_holds_all_of_it_before_fuller_nodes_elsewhere() -> None:
    world = World(*in_zones("a0", "b0", "b1"))
    world.submit(single("w", 4))
    world.submit(gang("any", 2, asks(4)))
    assert {node[0] for node in world.nodes_of("any")} == {"a", "b"}, "they fill what is begun"
    world.end("any")
    world.submit(gang("g", 2, asks(4), together=Level.ZONE))
    assert {node[0] for node in world.nodes_of("g")} == {"b"}


def test_a_gang_that_would_like_one_zone_lies_in_two_where_none_holds_it() -> None:
    world = World(*in_zones("a0", "b0", "b1", "c0"))
    world.submit(gang("g", 3, asks(8), together=Level.ZONE))
    assert len(world.nodes_of("g")) == 3


def test_a_gang_that_would_like_one_rack_lies_in_one_zone_where_no_rack_holds_it() -> None:
    world = World(*in_zones("a0", "b0", "b1", "c0"))
    world.submit(gang("g", 2, asks(8), together=Level.RACK))
    assert sorted(world.nodes_of("g")) == ["b0", "b1"]


def test_among_victims_with_as_much_to_lose_those_in_one_zone_leave_for_a_gang_that_would_like_one() -> None:
    nodes = named(in_zones("a0", "b0", "b1", "a1", cards=2))
    world = World(*nodes)
    world.submit(*(gang(n.name, 1, asks(2, extras=n.extras), priority=Priority.LOW) for n in nodes))
    world.go_to(100)
    world.submit(wishes(2, 2, Level.ZONE))
    assert len({node[0] for node in world.nodes_of("high")}) == 1
    check_everything(world.core)


def test_where_nobody_names_zones_all_machines_are_one() -> None:
    world = World(*in_racks("a0", "b0", "c0", cards=8))
    world.submit(together("g", 3, 8, Level.ZONE))
    assert world.state("g") is JobState.RUNNING
