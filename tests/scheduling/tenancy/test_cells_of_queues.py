"""Queues that are owed cells: whole nodes and sockets when they ask, whatever others run there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from explanation_oracle import changed_job
from worlds import World, asks, elastic, gang, machine, queue, single

from millpond.model.decisions import Start, Stop
from millpond.model.errors import InvalidInputError
from millpond.model.events import (
    DesiredCountChanged,
    DeviceHealthChanged,
    NodeClosed,
    NodeJoined,
    NodeLost,
    NodeOpened,
    QueueChanged,
)
from millpond.model.hardware.devices import DeviceHealth
from millpond.model.hardware.nodes import Cordon, Node
from millpond.model.reasons import Cause
from millpond.model.resources import Amount
from millpond.model.states import JobState
from millpond.model.tenancy.cells import CellCount
from millpond.model.tenancy.tenants import Queue
from millpond.model.workloads import Priority
from millpond.scheduling.reclaiming.roster import SLOT_IN_CELLS
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.tenancy.cells.cell_room import cards_of_cells


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


def test_borrowed_work_leaves_a_cell_rather_than_work_within_a_guarantee() -> None:
    world = World(*machines(2), queues=(LAB, queue("vision", guarantee=4), queue("others")))
    world.submit(single("promised", 4, queue="vision"))
    scattered(world, 12)
    world.submit(single("big", 8, queue="lab"))
    assert world.state("big") is JobState.RUNNING
    assert world.state("promised") is JobState.RUNNING


def test_the_node_on_which_the_least_work_is_lost_is_taken() -> None:
    world = World(*machines(2), queues=(LAB, queue("others")))
    world.submit(single("old", 8, queue="others"))
    world.go_to(10_000.0)
    scattered(world, 8)
    world.submit(single("big", 8, queue="lab"))
    assert world.state("old") is JobState.RUNNING


@pytest.mark.parametrize("above", [Priority.HIGH, Priority.NORMAL])
def test_an_idle_node_is_split_rather_than_a_socket_taken_that_work_lies_in(above: Priority) -> None:
    queues = owed("lab", 4, cells={"socket": 1}), queue("stays", guarantee=4), queue("lent")
    world = World(*machines(2), queues=queues)
    world.submit(single("there", 4, queue="stays", preemptible=False))
    owner = "lab" if above > Priority.NORMAL else "lent"
    world.submit(single("lies", 4, queue=owner))
    assert world.nodes_of("lies") == world.nodes_of("there")
    world.submit(single("new", 4, queue="lab", priority=above))
    assert world.running() == {"there", "lies", "new"}
    assert not world.of_kind(Stop)


def test_an_idle_node_that_is_owed_to_others_is_not_split() -> None:
    queues = LAB, owed("half", 4, cells={"socket": 1}), queue("stays", guarantee=4), queue("lent")
    world = World(*machines(2), queues=queues)
    world.submit(single("there", 4, queue="stays", preemptible=False), single("lies", 4, queue="lent"))
    assert world.nodes_of("lies") == world.nodes_of("there")
    world.submit(single("new", 4, queue="half"))
    assert [stop.job for stop in world.of_kind(Stop)] == ["lies"]
    assert world.nodes_of("new") == world.nodes_of("there")


def test_a_node_is_taken_back_however_many_others_hold_work_that_cannot_be_asked_yet() -> None:
    world = World(*machines(24), queues=(LAB, queue("others", minimum_run_s=3_600.0), queue("more")))
    world.submit(*(single(f"p{number}", 8, queue="others") for number in range(23)), single("open", 8, queue="more"))
    world.submit(single("big", 8, queue="lab"))
    assert world.state("big") is JobState.RUNNING


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


@pytest.mark.long
def test_the_cells_survive_a_snapshot_and_a_fork() -> None:
    world = World(*machines(2), queues=(LAB, queue("others", guarantee=8)))
    world.submit(single("big", 4, queue="lab"))
    (node,) = world.nodes_of("big")
    for twin in (Scheduler.restore(world.core.snapshot()), world.core.fork()):
        book = twin._state.cluster.cells  # the cells are no part of what decisions show
        assert book.is_in_cells(twin.jobs["big"])
        (chain,) = book.allocator.chains.values()
        assert [chain.device_of(leaf).rpartition("-")[0] for leaf in chain.holders] == [node] * 4


def test_more_cells_than_there_are_machines_are_refused_and_nothing_changes() -> None:
    world = World(*machines(2), queues=(LAB, queue("others")))
    with pytest.raises(InvalidInputError, match="have no place beside all other cells"):
        world.tell(QueueChanged(world.now, owed("others", 16, cells={"node": 2})))
    world.tell(QueueChanged(world.now, owed("others", 8, cells={"node": 1})))
    world.submit(single("mine", 8, queue="lab"), single("theirs", 8, queue="others"))
    assert world.running() == {"mine", "theirs"}


def guaranteed(name: str, *models: tuple[str, int], **fields: Any) -> Queue:
    """A queue that is guaranteed so many cards of each model."""
    amounts = tuple(sorted((model, 1000 * cards) for model, cards in models))
    cells = tuple(CellCount(level, count) for level, count in fields.pop("cells", {}).items())
    return replace(
        queue(name, cells=cells, **fields), guarantee=Amount(sum(milli for _, milli in amounts), models=amounts)
    )


TWO_MODELS = (machine("a0", 8), machine("a1", 8), machine("h0", 8, model="H100"), machine("h1", 8, model="H100"))


def test_cells_are_on_cards_of_the_models_that_the_guarantee_names() -> None:
    lab = guaranteed("lab", ("H100", 8), cells={"node": 1})
    world = World(*TWO_MODELS, queues=(lab, queue("others")))
    world.submit(*(single(f"s{number}", queue="others") for number in range(32)))
    world.submit(single("big", 8, queue="lab"))
    assert world.state("big") is JobState.RUNNING
    assert world.nodes_of("big")[0] in ("h0", "h1")
    (domain,) = world.core._state.cluster.cells.domains_of("lab")
    assert domain.chain.spec.model == "H100"


def test_cells_of_a_queue_below_are_on_cards_that_its_own_guarantee_names() -> None:
    group = guaranteed("group", ("A100", 8), ("H100", 8), cells={"node": 2})
    lab = guaranteed("lab", ("H100", 8), cells={"node": 1}, parent="group")
    world = World(*TWO_MODELS, queues=(group, lab, queue("others")))
    world.submit(single("big", 8, queue="lab"))
    assert [each.chain.spec.model for each in world.core._state.cluster.cells.domains_of("lab")] == ["H100"]


@pytest.mark.parametrize("fields", [{"cells": {"node": 2}}, {"pinned": ("a0", "h0")}])
def test_cells_on_cards_that_a_guarantee_does_not_name_are_refused(fields: dict[str, Any]) -> None:
    world = World(*TWO_MODELS, queues=(queue("lab"), queue("others")))
    with pytest.raises(
        InvalidInputError, match="1 x node of queue 'lab' have no place beside all other cells on cards that"
    ):
        world.tell(QueueChanged(world.now, guaranteed("lab", ("H100", 8), **fields)))


def test_a_guarantee_that_no_longer_names_the_models_of_its_cells_is_refused() -> None:
    world = World(*TWO_MODELS, queues=(guaranteed("lab", ("H100", 8), cells={"node": 1}), queue("others")))
    with pytest.raises(
        InvalidInputError, match="1 x node of queue 'lab' have no place beside all other cells on cards that"
    ):
        world.tell(QueueChanged(world.now, guaranteed("lab", ("A100", 4), ("H100", 4), cells={"node": 1})))


def test_a_machine_that_does_not_exist_is_named() -> None:
    world = World(*machines(2), queues=(queue("lab"), queue("others")))
    with pytest.raises(InvalidInputError, match="queue 'lab' is owed machine 'n7', and no machine with cards has this"):
        world.tell(QueueChanged(world.now, queue("lab", guarantee=16, pinned=("n1", "n7"))))


def test_why_names_the_cell_that_no_hardware_is_left_for() -> None:
    world = World(*machines(1), queues=(LAB, queue("others")))
    world.tell(DeviceHealthChanged(world.now, "n0", "n0-3", DeviceHealth.FAULTY, "ECC"))
    world.submit(single("big", 8, queue="lab"))
    assert "of the cells of queue lab no healthy hardware is there for 1 x node" in world.why("big").summary


def test_why_says_what_keeps_work_off_that_cannot_leave() -> None:
    world = World(*machines(2), queues=(owed("lab", 8, cells={"node": 1}), queue("others", guarantee=16)))
    world.submit(single("first", 8, queue="others", preemptible=False))
    world.submit(single("stays", 1, queue="others", preemptible=False))
    assert "stays off 2 nodes whose cards are owed as cells" in world.why("stays").summary


def usage(world: World, queue: str) -> list[tuple[str, int, int, int, int, int]]:
    found = world.core.queue_detail(queue).cells
    return [(each.level, each.owed, each.in_use, each.free, each.lent, each.bad) for each in found]


def test_a_queue_shows_its_cells_in_use_free_lent_and_bad() -> None:
    lab = owed("lab", 32, cells={"node": 4})
    world = World(*machines(5), queues=(lab, owed("vision", 4, cells={"socket": 1}), queue("others")))
    world.submit(single("big", 8, queue="lab"))
    assert usage(world, "lab") == [("node", 4, 1, 3, 0, 0)]
    scattered(world, 32)
    assert usage(world, "lab") == [("node", 4, 1, 0, 3, 0)]
    for node in [name for name in ("n0", "n1", "n2", "n3", "n4") if name not in world.nodes_of("big")][:2]:
        world.tell(DeviceHealthChanged(world.now, node, f"{node}-3", DeviceHealth.FAULTY, "ECC"))
    assert usage(world, "lab") == [("node", 4, 1, 0, 2, 1)]
    assert usage(world, "vision") == [("socket", 1, 0, 0, 1, 0)]
    assert [each[:3] for each in usage(world, "root")] == [("node", 4, 1), ("socket", 1, 0)]


def test_pinned_cells_are_shown_apart_and_without_their_machine_as_bad() -> None:
    world = World(*machines(2), queues=(queue("lab", guarantee=8, pinned=("n1",)), queue("others")))
    world.settle()
    (shown,) = world.core.queue_detail("lab").cells
    assert (shown.level, shown.pinned, shown.free) == ("node", True, 1)
    world.submit(single("big", 8, queue="lab"))
    assert usage(world, "lab") == [("node", 1, 1, 0, 0, 0)]
    world.tell(NodeLost(world.now, "n1"))
    world.settle()
    assert usage(world, "lab") == [("node", 1, 0, 0, 0, 1)]


@pytest.mark.parametrize(("held", "said"), [(1, "1 card of it is held by work"), (3, "3 cards of it are held by work")])
def test_why_names_the_cell_and_what_keeps_it(held: int, said: str) -> None:
    world = World(*machines(1), queues=(LAB, queue("others")))
    scattered(world, held, minimum_run_s=3_600.0)
    world.submit(single("big", 8, queue="lab"))
    told = world.why("big").summary
    assert f"it waits for a cell that queue lab is owed (node, on node n0): {said}" in told


def test_why_says_that_all_cells_are_in_use_or_too_small() -> None:
    world = World(*machines(1), queues=(owed("lab", 4, cells={"socket": 1}), queue("others")))
    world.submit(single("half", 4, queue="lab"), single("more", 4, queue="others"))
    world.submit(single("late", 4, queue="lab"), single("wide", 8, queue="lab"))
    assert "its cells have no room for it: queue lab uses 1 of 1 x socket" in world.why("late").summary
    assert "a task of 8 cards fits in no cell of queue lab" in world.why("wide").summary


def test_a_higher_class_has_the_cells_of_a_lower_one_that_stays_as_a_visitor() -> None:
    world = World(*machines(2), queues=(LAB, queue("others")))
    world.submit(single("low", 4, queue="lab", priority=Priority.LOW))
    world.submit(single("high", 8, queue="lab", priority=Priority.HIGH))
    assert world.running() == {"low", "high"}
    assert not world.of_kind(Stop)
    world.submit(single("all", 8, queue="others", priority=Priority.HIGH))
    assert world.running() == {"high", "all"}, "what is in cells leaves for no other queue, and visitors by their class"


def test_a_broken_cell_goes_from_a_lower_class_to_a_higher_one_and_no_whole_cell_of_others_for_it() -> None:
    queues = owed("lab", 4, cells={"socket": 1}), owed("singles", 4, cells={"card": 4})
    world = World(*machines(1), queues=queues)
    world.submit(single("lower", 2, queue="lab", priority=Priority.LOW))
    ((_, had),) = devices_of(world, "lower")
    broken = {f"n0-{number}" for number in (range(4) if "n0-0" in had else range(4, 8))} - set(had)
    for card in sorted(broken):
        world.tell(DeviceHealthChanged(world.now, "n0", card, DeviceHealth.FAULTY, "ECC"))
    world.submit(single("higher", 2, queue="lab", priority=Priority.HIGH))
    assert devices_of(world, "higher") == [("n0", had)]
    for number in range(4):
        world.submit(single(f"s{number}", queue="singles"))
        assert world.state(f"s{number}").value == "running"


def test_who_lost_its_cells_has_them_again_when_the_other_goes() -> None:
    world = World(*machines(2), queues=(LAB, queue("others")))
    world.submit(single("low", 4, queue="lab", priority=Priority.LOW))
    world.submit(single("high", 8, queue="lab", priority=Priority.HIGH))
    world.end("high")
    assert world.core._state.cluster.cells.is_in_cells(world.core.jobs["low"])  # nothing but its safety shows it
    world.submit(single("all", 8, queue="others", priority=Priority.CRITICAL), single("too", 8, queue="others"))
    assert "low" in world.running()


def test_who_has_its_cells_again_is_protected_whatever_was_restored_meanwhile() -> None:
    world = World(*machines(2), queues=(LAB, queue("others")))
    world.submit(single("low", 4, queue="lab", priority=Priority.LOW))
    world.submit(single("high", 8, queue="lab", priority=Priority.HIGH))
    world.core = Scheduler.restore(world.core.snapshot())
    world.end("high")
    state = world.core._state
    low = state.jobs["low"]
    assert state.cluster.cells.is_in_cells(low)
    assert state.roster.slots[SLOT_IN_CELLS, low.slot] == 1.0


def test_a_gang_that_lost_its_cells_and_grew_into_another_keeps_that_when_the_first_have_broken() -> None:
    queues = owed("lab", 8, cells={"socket": 2}), owed("den", 4, cells={"socket": 1})
    world = World(*machines(2), queues=queues)
    world.submit(elastic("low", (1, 2, 3), asks(1), queue="lab", priority=Priority.LOW))
    for job, owner in (("theirs", "den"), ("mate", "lab")):
        world.submit(single(job, 4, queue=owner))
    world.submit(single("high", 4, queue="lab", priority=Priority.HIGH))
    world.end("mate")
    world.tell(DesiredCountChanged(world.now, "low", "worker", 3))
    world.settle()
    tasks = [task.holding for task in world.core.jobs["low"].tasks if task.holding is not None]
    assert [holding.is_in_cell for holding in tasks] == [False, False, True]
    had = {grant.device for place in world.of_kind(Start, "low")[0].placements for grant in place.grants}
    socket = {f"n0-{number}" for number in range(4)}
    assert had < socket
    world.tell(DeviceHealthChanged(world.now, "n0", min(socket - had), DeviceHealth.FAULTY, "ECC"))
    world.end("high")
    assert [holding.is_in_cell for holding in tasks] == [False, False, True]


def test_work_that_is_covered_by_amount_leaves_for_a_cell_and_takes_back_what_others_borrowed() -> None:
    queues = (owed("a", 8, cells={"node": 1}), queue("c", guarantee=4), queue("others"))
    world = World(machine("n0", 8), machine("n1", 4), queues=queues)
    world.submit(single("wide", 4, queue="c", priority=Priority.HIGH), single("lent", 4, queue="others"))
    scattered(world, 4)
    world.submit(single("big", 8, queue="a"))
    assert world.running() == {"big", "wide"}


def test_a_gang_grows_into_its_own_cells_first() -> None:
    world = World(*machines(3), queues=(owed("lab", 8, cells={"node": 1}), queue("others")))
    world.submit(single("there", 2, queue="lab"))
    (node,) = world.nodes_of("there")
    world.submit(elastic("gang", (1, 3, 3), asks(2), queue="lab"))
    assert world.nodes_of("gang") == [node] * 3


def refused(world: World, *changed: Queue) -> str:
    """What is said of queues as they might be; nothing is changed by the question."""
    before = world.core.snapshot()
    with pytest.raises(InvalidInputError) as caught:
        world.core.queue_statuses(changed)
    assert world.core.snapshot() == before
    return str(caught.value)


def test_what_is_wrong_with_cells_is_said_before_anything_changes() -> None:
    world = World(*machines(2), queues=(LAB, queue("others")))
    assert "no place beside all other cells" in refused(world, owed("others", 16, cells={"node": 2}))
    assert "no machine has such cells" in refused(world, owed("others", 3, cells={"3_cards": 1}))
    twice = [queue(name, guarantee=8, pinned=("n0",)) for name in ("lab", "others")]
    assert "is pinned to queue 'others', and to queue 'lab' before" in refused(world, *twice)


def test_machines_that_are_pinned_twice_are_refused_before_any_has_joined() -> None:
    world = World(queues=(queue("lab", guarantee=8, pinned=("n0",)), queue("others")))
    with pytest.raises(InvalidInputError, match="pin it once"):
        world.tell(QueueChanged(world.now, queue("others", guarantee=8, pinned=("n0",))))


def test_cells_may_move_from_one_queue_to_another_at_once() -> None:
    world = World(*machines(1), queues=(LAB, queue("others")))
    assert world.core.queue_statuses([queue("lab"), owed("others", 8, cells={"node": 1})])


@pytest.mark.parametrize("part", [1.0, 0.5, 0.25])
def test_parts_of_cards_leave_a_cell_as_whole_cards_do(part: float) -> None:
    """The work is within its own guarantee, so that it leaves for a cell alone, and the other cell is broken."""
    world = World(machine("n", 4), queues=(owed("lab", 2, cells={"switch": 1}), queue("others", guarantee=2)))
    for card in ("n-2", "n-3"):
        world.tell(DeviceHealthChanged(world.now, "n", card, DeviceHealth.FAULTY, "it broke"))
    world.submit(*(single(f"s{number}", part, queue="others") for number in range(round(2 / part))))
    assert len(world.running()) == 2 / part
    world.submit(single("own", 2, queue="lab"))
    assert world.running() == {"own"}


def test_a_gang_and_a_part_of_a_card_leave_a_cell_together() -> None:
    """Of the gang one task leaves first, as it can do without it; on its card is another's too."""
    world = World(machine("n", 4), queues=(owed("lab", 2, cells={"switch": 1}), queue("others", guarantee=2)))
    for card in ("n-2", "n-3"):
        world.tell(DeviceHealthChanged(world.now, "n", card, DeviceHealth.FAULTY, "it broke"))
    world.submit(elastic("gang", (1, 3, 3), asks(0.5), queue="others"))
    world.submit(single("slice", 0.5, queue="others"))
    assert world.running() == {"gang", "slice"}
    world.submit(single("own", 2, queue="lab"))
    assert world.state("own") is JobState.RUNNING


def test_why_work_that_stays_finds_no_place_beside_cells_is_told() -> None:
    """Of six pairs of cards three are owed, and three cards on each of two nodes leave but two of them."""
    world = World(
        *(machine(f"n{number}", 4) for number in range(3)),
        queues=(owed("lab", 6, cells={"switch": 3}), queue("team", guarantee=6)),
    )
    wide = gang("wide", 2, asks(3), queue="team", preemptible=False)
    assert world.core.check(wide) is None
    world.submit(wide)
    why = world.why("wide")
    assert why.cause is Cause.NO_ROOM
    assert "the cells that queues are owed would lack hardware" in why.summary
    assert why.start is not None
    assert why.start.unknown == "what the estimate knows of would have let it start by now"
    assert why.remedy is not None
    world.submit(single("narrow", 2, queue="team", preemptible=False))
    assert world.running() == {"narrow"}


def test_what_is_not_preemptible_and_fits_in_no_cell_is_refused_where_all_machines_are_owed_as_cells() -> None:
    world = World(*machines(2), queues=(owed("lab", 16, cells={"socket": 4}), queue("others")))
    world.settle()
    wide = single("wide", 8, queue="lab", preemptible=False)
    refusal = world.core.check(wide)
    assert refusal is not None
    assert refusal.cause is Cause.IMPOSSIBLE
    assert "the cells of queue lab have no room for it, even if all of them are free" in refusal.summary
    assert refusal.remedy is not None
    world.submit(changed_job(wide, refusal.remedy))
    assert world.running() == {"wide-changed"}
    assert world.core.check(single("fits", 4, queue="lab", preemptible=False)) is None


def test_what_is_not_preemptible_is_refused_where_all_machines_are_owed_to_other_queues_as_cells() -> None:
    world = World(*machines(1), queues=(owed("lab", 4, cells={"node": 1}), queue("others", guarantee=4)))
    world.settle()
    refusal = world.core.check(single("stays", 1, queue="others", preemptible=False))
    assert refusal is not None
    assert (
        "it stays off what other queues are owed as cells; beside all cells there is never room for it"
        in refusal.summary
    )


@pytest.mark.parametrize(("cells", "left"), [({"node": 1}, 16), ({"node": 1, "socket": 2}, 8)])
def test_a_gang_of_more_cards_than_are_left_beside_all_cells_is_refused(cells: dict[str, int], left: int) -> None:
    world = World(*machines(3), queues=(owed("lab", 16, cells=cells), queue("others", guarantee=24)))
    world.settle()
    fitting, more = (
        gang(f"of-{tasks}", tasks, asks(8), queue="others", preemptible=False) for tasks in (left // 8, left // 8 + 1)
    )
    refusal = world.core.check(more)
    assert refusal is not None
    assert refusal.summary.endswith(
        f"beside all cells there are never more than {left} cards, and it asks for {left + 8}"
    )
    assert world.core.check(fitting) is None
    world.submit(fitting)
    assert world.running() == {fitting.id}


def test_what_is_not_preemptible_runs_beside_all_cells_where_it_fits_in_none_of_its_own() -> None:
    world = World(*machines(3), queues=(owed("lab", 16, cells={"socket": 4}), queue("others")))
    world.settle()
    world.submit(single("wide", 8, queue="lab", preemptible=False))
    assert world.running() == {"wide"}


def test_a_job_that_waits_stays_when_cells_change_so_that_it_fits_in_none_and_is_told() -> None:
    world = World(*machines(1), queues=(owed("lab", 8, cells={"node": 1}), queue("others")))
    world.submit(single("first", 8, queue="lab", preemptible=False), single("next", 8, queue="lab", preemptible=False))
    world.tell(QueueChanged(world.now, owed("lab", 8, cells={"socket": 2})))
    world.end("first")
    why = world.why("next")
    assert why.cause is Cause.IMPOSSIBLE
    assert "there is never room for it, with 8 cards a task" in why.summary
    world.tell(QueueChanged(world.now, owed("lab", 8, cells={"node": 1})))
    world.settle()
    assert world.running() == {"next"}


def test_how_many_cards_cells_have_is_known_of_machines() -> None:
    lab, named = owed("lab", 8, cells={"node": 1, "card": 2}), queue("named", guarantee=8, pinned=("n0",))
    nodes = [machine("small", 4), *machines(1)]
    assert [cards_of_cells(nodes, each) for each in (lab, named)] == [4 + 2, 8]
    assert cards_of_cells([], lab) == 1 + 2
