"""Queues that are owed cells: whole nodes and sockets when they ask, whatever others run there."""

from __future__ import annotations

from typing import Any

import pytest
from worlds import World, asks, gang, machine, queue, single

from millpond.model.cells import CellCount
from millpond.model.decisions import Start, Stop
from millpond.model.devices import DeviceHealth
from millpond.model.errors import InvalidInputError
from millpond.model.events import DeviceHealthChanged, NodeClosed, NodeJoined, NodeLost, NodeOpened, QueueChanged
from millpond.model.nodes import Cordon, Node
from millpond.model.reasons import Cause
from millpond.model.tenants import Queue
from millpond.model.workloads import Priority
from millpond.scheduling.scheduler import Scheduler


def owed(name: str, cards: int, **fields: Any) -> Queue:
    """A queue that is owed cells: ``node=2``, ``socket=1``."""
    cells = tuple(CellCount(level.replace("_", " "), count) for level, count in fields.pop("cells").items())
    return queue(name, guarantee=cards, cells=cells, **fields)


def machines(count: int, **fields: Any) -> list[Node]:
    return [machine(f"n{number}", 8, **fields) for number in range(count)]


LAB = owed("lab", 8, cells={"node": 1})


def scattered(world: World, count: int, **fields: Any) -> None:
    """Single cards of another queue, everywhere."""
    world.submit(*(single(f"s{number}", queue="others", **fields) for number in range(count)))


def devices_of(world: World, job: str) -> list[tuple[str, tuple[str, ...]]]:
    start: Start = world.of_kind(Start, job)[-1]
    return [(place.node, tuple(grant.device for grant in place.grants)) for place in start.placements]


def test_a_whole_node_is_taken_back_from_scattered_single_cards() -> None:
    world = World(*machines(2), queues=(LAB, queue("others")))
    scattered(world, 16)
    world.submit(single("big", 8, queue="lab"))
    assert world.state("big").value == "running"
    stops = world.of_kind(Stop)
    assert len(stops) == 8
    assert {stop.cause for stop in stops} == {Cause.RECLAIMED}
    assert all(stop.for_job == "big" for stop in stops)


def test_the_node_with_the_fewest_visitors_is_taken() -> None:
    world = World(*machines(3), queues=(LAB, queue("others")))
    scattered(world, 12)
    world.submit(single("big", 8, queue="lab"))
    assert not world.of_kind(Stop)
    assert world.state("big").value == "running"


def test_nobody_leaves_for_less_than_the_whole_plan() -> None:
    """A visitor that may not be asked protects its node: the other one is taken, or none."""
    world = World(*machines(2), queues=(LAB, queue("others")))
    scattered(world, 16, minimum_run_s=3_600.0)
    world.submit(single("big", 8, queue="lab"))
    assert not world.of_kind(Stop)
    world.go_to(3_700.0)
    assert world.state("big").value == "running"
    assert len(world.of_kind(Stop)) == 8


def test_what_cannot_leave_never_takes_what_is_owed() -> None:
    world = World(*machines(2), queues=(LAB, queue("others", guarantee=8)))
    scattered(world, 16, preemptible=False)
    nodes = {world.nodes_of(f"s{number}")[0] for number in range(16) if world.state(f"s{number}").value == "running"}
    assert len(nodes) == 1
    world.submit(single("big", 8, queue="lab"))
    assert world.state("big").value == "running"
    assert not world.of_kind(Stop)


def test_work_that_cannot_leave_uses_the_rest_of_a_node_of_which_a_socket_is_owed() -> None:
    world = World(machine("n0", 8), queues=(owed("lab", 4, cells={"socket": 1}), queue("others", guarantee=4)))
    scattered(world, 8, preemptible=False)
    assert len(world.running()) == 4
    world.submit(single("half", 4, queue="lab"))
    assert world.state("half").value == "running"


def test_small_jobs_of_the_owner_are_packed_into_one_cell() -> None:
    world = World(*machines(2), queues=(owed("lab", 16, cells={"node": 2}), queue("others")))
    world.submit(*(single(f"l{number}", 2, queue="lab") for number in range(4)))
    assert len({world.nodes_of(f"l{number}")[0] for number in range(4)}) == 1
    scattered(world, 8)
    world.submit(single("big", 8, queue="lab"))
    assert world.state("big").value == "running"
    assert {stop.job[0] for stop in world.of_kind(Stop)} == {"s"}


def test_work_in_cells_is_not_displaced_by_other_queues() -> None:
    world = World(*machines(1), queues=(LAB, queue("others")))
    world.submit(single("big", 8, queue="lab"))
    world.submit(single("high", 8, queue="others", priority=Priority.CRITICAL))
    assert world.running() == {"big"}


def test_a_gang_gets_the_rack_that_is_owed() -> None:
    nodes = [machine(f"{rack}{number}", 8, rack_name=rack) for rack in "ab" for number in range(2)]
    world = World(*nodes, queues=(owed("lab", 16, cells={"rack of 2 nodes": 1}), queue("others")))
    scattered(world, 32)
    world.submit(gang("big", 2, asks(8), queue="lab"))
    assert world.state("big").value == "running"
    assert len({name[0] for name, _ in devices_of(world, "big")}) == 1


def test_cells_on_a_broken_node_are_given_elsewhere() -> None:
    world = World(*machines(2), queues=(LAB, queue("others")))
    scattered(world, 16)
    world.tell(DeviceHealthChanged(world.now, "n0", "n0-3", DeviceHealth.FAULTY, "ECC"))
    world.submit(single("big", 8, queue="lab"))
    assert world.nodes_of("big") == ["n1"]


@pytest.mark.parametrize("back", [False, True])
def test_cells_follow_nodes_that_go_and_come(back: bool) -> None:
    world = World(*machines(2), queues=(LAB, queue("others")))
    world.submit(single("big", 8, queue="lab"))
    (node,) = world.nodes_of("big")
    world.tell(NodeLost(world.now, node))
    if back:
        world.tell(NodeJoined(world.now, machine(node, 8)))
    world.submit(single("small", 1, queue="others", preemptible=True))
    assert world.state("big").value == "running"


def test_a_closed_node_is_no_place_for_cells_until_it_opens() -> None:
    world = World(*machines(1), queues=(LAB, queue("others")))
    world.tell(NodeClosed(world.now, "n0", Cordon(world.now, reason="repair")))
    world.submit(single("big", 8, queue="lab"))
    assert world.state("big").value == "queued"
    world.tell(NodeOpened(world.now, "n0"))
    world.settle()
    assert world.state("big").value == "running"


def test_a_queue_that_is_owed_cells_from_now_on_gets_them() -> None:
    world = World(*machines(2), queues=(queue("lab"), queue("others")))
    scattered(world, 16)
    world.submit(single("big", 8, queue="lab"))
    assert world.state("big").value == "queued"
    world.tell(QueueChanged(world.now, LAB))
    world.settle()
    assert world.state("big").value == "running"


def test_a_queue_that_loses_its_cells_keeps_its_work_as_borrowed() -> None:
    world = World(*machines(1), queues=(LAB, queue("others")))
    world.submit(single("big", 8, queue="lab"))
    world.tell(QueueChanged(world.now, queue("lab")))
    world.tell(QueueChanged(world.now, owed("others", 8, cells={"node": 1})))
    world.settle()
    assert world.running() == {"big"}
    world.submit(single("theirs", 8, queue="others"))
    assert world.running() == {"theirs"}


def test_queues_below_have_their_cells_out_of_those_above() -> None:
    queues = (
        owed("lab", 16, cells={"node": 2}),
        owed("x", 8, cells={"node": 1}, parent="lab"),
        owed("y", 4, cells={"socket": 1}, parent="lab"),
        queue("others"),
    )
    world = World(*machines(2), queues=queues)
    scattered(world, 16)
    world.submit(single("ofx", 8, queue="x"), single("ofy", 4, queue="y"))
    assert {"ofx", "ofy"} <= world.running()
    assert len(world.of_kind(Stop)) == 12


def test_pinned_nodes_are_those_that_were_named() -> None:
    world = World(*machines(3), queues=(queue("lab", guarantee=8, pinned=("n2",)), queue("others")))
    scattered(world, 24)
    world.submit(single("big", 8, queue="lab"))
    assert world.nodes_of("big") == ["n2"]


def test_the_cells_survive_a_snapshot_and_a_fork() -> None:
    world = World(*machines(2), queues=(LAB, queue("others", guarantee=8)))
    world.submit(single("big", 4, queue="lab"))
    (node,) = world.nodes_of("big")
    for twin in (Scheduler.restore(world.core.snapshot()), world.core.fork()):
        book = twin._state.cluster.cells  # the cells are no part of what decisions show
        assert book.is_in_cells(twin.jobs["big"])
        (chain,) = book.allocator.chains.values()
        assert [chain.node_of(leaf) for leaf in chain.holders] == [node] * 4


def test_more_cells_than_there_are_machines_are_refused_and_nothing_changes() -> None:
    world = World(*machines(2), queues=(LAB, queue("others")))
    with pytest.raises(InvalidInputError, match="have no place beside all other cells"):
        world.tell(QueueChanged(world.now, owed("others", 16, cells={"node": 2})))
    world.tell(QueueChanged(world.now, owed("others", 8, cells={"node": 1})))
    world.submit(single("mine", 8, queue="lab"), single("theirs", 8, queue="others"))
    assert world.running() == {"mine", "theirs"}


def test_why_names_the_cell_that_no_hardware_is_left_for() -> None:
    world = World(*machines(1), queues=(LAB, queue("others")))
    world.tell(DeviceHealthChanged(world.now, "n0", "n0-3", DeviceHealth.FAULTY, "ECC"))
    world.submit(single("big", 8, queue="lab"))
    assert "of the cells of queue lab no healthy hardware is there for 1 x node" in world.why("big").summary


def test_why_says_what_keeps_work_off_that_cannot_leave() -> None:
    world = World(*machines(1), queues=(owed("lab", 4, cells={"node": 1}), queue("others", guarantee=4)))
    world.submit(single("stays", 1, queue="others", preemptible=False))
    assert "stays off 1 node whose cards are owed as cells" in world.why("stays").summary
