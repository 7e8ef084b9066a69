"""Gangs of all kinds in queues that are owed cells: tasks that differ, that must lie together, or apart."""

from __future__ import annotations

from typing import Any

import pytest
from twinned import TwinnedWorld
from worlds import World, asks, elastic, gang, machine, queue, single

from millpond.model.decisions import Stop
from millpond.model.hardware.node_selection import NodeOperator, NodeRequirement
from millpond.model.hardware.nodes import Node
from millpond.model.hardware.topology import Level
from millpond.model.resources import TaskRequest
from millpond.model.states import JobState
from millpond.model.task_spacing import SpacingKind, SpacingRule
from millpond.model.tenancy.cells import CellCount
from millpond.model.tenancy.tenants import Queue
from millpond.model.workloads import Job, Role

WITHOUT_CARDS = TaskRequest(1000, 1024)


def lab(count: int, level: str = "node", cards: int = 4) -> Queue:
    return queue("lab", guarantee=count * cards, cells=(CellCount(level, count),))


def mixed(name: str, *requests: TaskRequest, **fields: Any) -> Job:
    roles = tuple(Role(request, 1, name=f"role{number}") for number, request in enumerate(requests))
    return Job(name, roles, **{"queue": "lab", "preemptible": False, **fields})


def in_racks(racks: int, cards: int = 4) -> list[Node]:
    """Two machines in each rack, in turn."""
    places = [(number, rack) for number in range(2) for rack in range(racks)]
    return [
        machine(f"n{number}{rack}", cards, rack_name=f"r{rack}", labels=(("block", f"r{rack}"),))
        for number, rack in places
    ]


def racks_of(world: World, job: str) -> list[str]:
    return [name[2] for name in world.nodes_of(job)]


@pytest.mark.parametrize("preemptible", [True, False])
def test_tasks_that_must_lie_in_one_rack_have_cells_of_one(preemptible: bool) -> None:
    world = World(*in_racks(2), queues=(lab(2), queue("others", guarantee=8, cells=(CellCount("node", 2),))))
    world.submit(single("x", 4, queue="others", preemptible=False))
    taken = racks_of(world, "x")[0]
    world.submit(
        gang("g", 2, asks(4), queue="lab", preemptible=preemptible, together=Level.RACK, together_required=True)
    )
    assert len(set(racks_of(world, "g"))) == 1
    assert taken not in racks_of(world, "g")


def test_tasks_that_must_lie_on_one_node_have_a_cell_with_room_for_all() -> None:
    world = World(*in_racks(2), queues=(lab(4), queue("others")))
    world.submit(*(single(f"s{number}", 3, queue="lab") for number in range(3)))
    world.submit(gang("g", 2, asks(2), queue="lab", together=Level.NODE, together_required=True))
    assert len(set(world.nodes_of("g"))) == 1


def test_tasks_that_should_lie_in_one_rack_do_where_nobody_has_to_leave_for_that() -> None:
    for crowd, racks in ((), 1), (("r0", "r1"), 2):
        world = World(*in_racks(2), queues=(lab(2), queue("others")))
        for rack in crowd:
            here = ((NodeRequirement("block", NodeOperator.IN, (rack,)),),)
            world.submit(single(f"o{rack}", 1, queue="others", only_on=here))
        world.submit(gang("g", 2, asks(4), queue="lab", together=Level.RACK))
        assert len(set(racks_of(world, "g"))) == racks
        assert not world.of_kind(Stop)


def test_visitors_leave_the_rack_that_a_gang_gets() -> None:
    world = World(*in_racks(2), queues=(lab(2), queue("others")))
    world.submit(*(single(f"o{number}", 1, queue="others") for number in range(16)))
    world.submit(gang("g", 2, asks(4), queue="lab", together=Level.RACK, together_required=True))
    assert world.state("g") is JobState.RUNNING
    assert len(set(racks_of(world, "g"))) == 1
    assert len(world.of_kind(Stop)) == 8


def test_whole_cards_and_parts_of_one_job_that_never_leaves_have_cells() -> None:
    world = World(machine("n", 4), queues=(lab(1), queue("others")))
    world.submit(mixed("job", asks(2), asks(0.5)))
    assert world.state("job") is JobState.RUNNING
    world.submit(gang("part", 1, asks(0.5), queue="lab", preemptible=False))
    world.submit(single("one", 1, queue="lab", preemptible=False))
    assert world.running() == {"job", "part", "one"}


@pytest.mark.parametrize("preemptible", [True, False])
def test_a_task_without_cards_goes_beside_the_cells_of_the_others(preemptible: bool) -> None:
    world = World(machine("n", 4), queues=(lab(1), queue("others")))
    world.submit(*(single(f"o{number}", 1, queue="others") for number in range(4)))
    world.submit(mixed("job", asks(4), WITHOUT_CARDS, preemptible=preemptible))
    assert world.state("job") is JobState.RUNNING
    assert len(world.of_kind(Stop)) == 4


def test_nobody_is_asked_to_leave_for_cells_where_a_task_without_cards_has_no_room() -> None:
    world = World(machine("n", 4), queues=(lab(1), queue("others")))
    world.submit(*(single(f"o{number}", 1, queue="others") for number in range(4)))
    world.submit(mixed("job", asks(4), TaskRequest(10_000_000, 1024)))
    assert not world.of_kind(Stop)


def test_work_in_cells_with_a_task_beside_them_leaves_for_no_other_queue() -> None:
    world = World(machine("n", 4), queues=(lab(1), queue("rich", guarantee=4)))
    world.submit(mixed("job", asks(4), WITHOUT_CARDS, preemptible=True))
    world.submit(single("other", 4, queue="rich"))
    assert world.running() == {"job"}


@pytest.mark.parametrize("preemptible", [True, False])
def test_tasks_that_must_lie_apart_have_cells_of_several_places(preemptible: bool) -> None:
    rule = SpacingRule(SpacingKind.APART, "block", ("worker",), ("worker",))
    world = World(*in_racks(2), queues=(lab(4), queue("others")))
    world.submit(gang("g", 2, asks(2), queue="lab", preemptible=preemptible, spacing=(rule,)))
    assert sorted(racks_of(world, "g")) == ["0", "1"]


def test_it_is_said_when_cells_have_no_room_for_a_gang_even_if_all_are_free() -> None:
    rule = SpacingRule(SpacingKind.APART, "block", ("worker",), ("worker",))
    rest = queue("others", guarantee=12, cells=(CellCount("node", 3),))
    world = World(*in_racks(2), queues=(lab(1), rest))
    world.submit(gang("g", 2, asks(2), queue="lab", preemptible=False, spacing=(rule,)))
    assert "the cells of queue lab have no room for it, even if all of them are free" in world.why("g").summary


def test_some_tasks_that_must_lie_together_begin_where_all_of_them_have_cells() -> None:
    rule = SpacingRule(SpacingKind.TOGETHER, "block", ("worker",))
    roles = Role.rigid(asks(4), 2, "worker"), Role.rigid(asks(4), 1, "other")
    world = World(*in_racks(2), queues=(lab(4), queue("others")))
    world.submit(single("x", 4, queue="lab", preemptible=False))
    taken = racks_of(world, "x")[0]
    world.submit(Job("g", roles, queue="lab", preemptible=False, spacing=(rule,)))
    assert world.state("g") is JobState.RUNNING
    assert racks_of(world, "g")[2] == taken


def test_a_gang_that_never_leaves_grows_in_its_own_cells() -> None:
    world = World(machine("n", 4), queues=(lab(1), queue("others")))
    world.submit(single("x", 2, queue="lab", preemptible=False))
    world.submit(elastic("g", (1, 4, 4), asks(1), queue="lab", preemptible=False))
    assert len(world.nodes_of("g")) == 2
    world.end("x")
    assert len(world.nodes_of("g")) == 4


def test_a_mixed_gang_has_the_same_cells_in_a_copy_and_when_the_log_is_redone() -> None:
    world = TwinnedWorld(*in_racks(2), queues=(lab(2), queue("others")))
    world.share = 1.0
    world.submit(*(single(f"o{number}", 1, queue="others") for number in range(16)))
    world.submit(mixed("a", asks(3), asks(0.5), WITHOUT_CARDS))
    world.submit(mixed("b", asks(2), WITHOUT_CARDS, together=Level.RACK, together_required=True))
    assert {"a", "b"} <= world.running()
    world.end("a")
    world.submit(mixed("c", asks(1), asks(0.5), asks(0.5)))
    assert {"b", "c"} <= world.running()
