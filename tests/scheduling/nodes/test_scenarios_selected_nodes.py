"""Jobs that may have some nodes alone, by the labels of these: where they start, whom they make leave, what is said."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from worlds import World, asks, gang, machine, single

from ledgers import check_everything
from millpond.model.decisions import Stop
from millpond.model.events import NodeClosed, NodeJoined
from millpond.model.hardware.node_selection import NodeOperator, NodeRequirement, NodeSelection
from millpond.model.hardware.nodes import Cordon, Node
from millpond.model.reasons import Cause, Filter
from millpond.model.states import JobState
from millpond.model.workloads import Priority
from millpond.scheduling.scheduler import Scheduler
from seeds import few_then_many


def labelled(name: str, cards: int = 2, **labels: str) -> Node:
    return replace(machine(name, cards), labels=tuple(sorted(labels.items())))


def in_zone(*zones: str) -> NodeSelection:
    return ((NodeRequirement("zone", NodeOperator.IN, zones),),)


A1, A2, B1 = labelled("a1", zone="a"), labelled("a2", zone="a"), labelled("b1", zone="b")


def test_a_job_starts_on_the_nodes_that_it_selects() -> None:
    world = World(A1, B1)
    world.submit(*(single(f"j{number}", only_on=in_zone("b")) for number in range(3)), single("any"))
    assert [world.nodes_of(f"j{number}") for number in range(3)] == [["b1"], ["b1"], []]
    assert world.nodes_of("any") == ["a1"]
    check_everything(world.core)


def test_one_that_waits_for_its_nodes_holds_up_nobody_else_and_hears_how_many_are_not_meant() -> None:
    world = World(A1, A2, B1)
    world.submit(single("first", 2, only_on=in_zone("b")), single("waits", 2, only_on=in_zone("b")), single("other", 2))
    assert (world.state("waits"), world.state("other")) == (JobState.QUEUED, JobState.RUNNING)
    reason = world.why("waits")
    assert reason.cause is Cause.NO_ROOM
    assert "none of the nodes that it asks for has room" in reason.summary
    assert dict(reason.nodes)[Filter.NOT_SELECTED] == 2
    assert reason.start is not None
    assert "nothing runs whose length is known" in reason.start.unknown


@pytest.mark.parametrize(
    ("closed", "planned", "told"),
    [
        ("b1", "a1", {Filter.FITS: 0, Filter.CLOSED: 1, Filter.NOT_SELECTED: 1, Filter.KEPT_FOR_OTHERS: 0}),
        ("a1", "b1", {Filter.CLOSED: 1, Filter.CLOSES_TOO_SOON: 1, Filter.KEPT_FOR_OTHERS: 0, Filter.NOT_SELECTED: 0}),
    ],
)
def test_a_node_that_is_not_meant_and_closed_or_about_to_be_is_counted_once(
    closed: str, planned: str, told: dict[Filter, int]
) -> None:
    world = World(A1, B1)
    world.tell(NodeClosed(world.now, closed, Cordon(world.now)))
    soon = Cordon(world.now + 60.0, world.now + 600.0, drain=True, planned=True)
    world.tell(NodeClosed(world.now, planned, soon))
    world.submit(single("waits", only_on=in_zone("b")), lasting=3600.0, known=True)
    counts = dict(world.why("waits").nodes)
    assert {each: counts.get(each, 0) for each in told} == told
    assert sum(counts.values()) == 2


def test_a_gang_lies_on_selected_nodes_as_a_whole_or_not_at_all() -> None:
    world = World(A1, A2, B1)
    world.submit(gang("g", 4, asks(1), only_on=in_zone("a")))
    assert set(world.nodes_of("g")) == {"a1", "a2"}
    assert "no node of pool 'default' is as it asks: zone=c" in refusal(
        world, gang("h", 2, asks(1), only_on=in_zone("c"))
    )
    assert refusal(world, gang("h", 5, asks(1), only_on=in_zone("a")))
    assert not refusal(world, gang("h", 5, asks(1)))


def refusal(world: World, job: object) -> str:
    found = world.core.check(job)  # type: ignore[arg-type]
    return "" if found is None else found.summary


def test_work_leaves_for_a_higher_class_where_that_may_go_alone() -> None:
    world = World(A1, B1)
    world.submit(single("on-a", 2, only_on=in_zone("a")), single("on-b", 2, only_on=in_zone("b")))
    world.submit(single("high", 2, priority=Priority.HIGH, only_on=in_zone("b")))
    assert [stop.job for stop in world.of_kind(Stop)] == ["on-b"]
    assert world.nodes_of("high") == ["b1"]


def test_a_node_that_gets_the_label_is_taken_at_once_and_running_work_outlives_its_loss() -> None:
    world = World(A1, B1)
    world.submit(single("j", only_on=in_zone("c", "b")), single("k", 2, only_on=in_zone("b")))
    assert world.state("k") is JobState.QUEUED
    world.tell(NodeJoined(world.now, replace(A1, labels=(("zone", "b"),))))
    world.settle()
    assert world.nodes_of("k") == ["a1"]
    world.tell(NodeJoined(world.now, replace(A1, labels=())))
    world.settle()
    assert world.nodes_of("k") == ["a1"]


def test_a_restored_and_a_forked_scheduler_know_what_is_selected() -> None:
    world = World(A1, B1)
    world.submit(single("j", 2, only_on=in_zone("b")), single("k", 2, only_on=in_zone("b")))
    for twin in (Scheduler.restore(world.core.snapshot()), world.core.fork()):
        twin.handle(NodeJoined(world.now, labelled("b2", zone="b")))
        starts = twin.decide(world.now)
        assert [(start.job, [placed.node for placed in start.placements]) for start in starts] == [("k", ["b2"])]  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", few_then_many(range(4), range(4, 12)))
def test_in_random_runs_nobody_starts_where_it_may_not_and_nobody_waits_beside_a_free_card_that_it_may_have(
    seed: int,
) -> None:
    draw = random.Random(seed)
    nodes = {f"n{number}": draw.choice("abc") for number in range(5)}
    world = World(*(labelled(name, 2, zone=zone) for name, zone in nodes.items()))
    goes_on: set[tuple[str, str]] = set()
    for step in range(80):
        if draw.random() < 0.5:
            wanted = in_zone(*draw.sample("abc", draw.randint(1, 2))) if draw.random() < 0.8 else ()
            world.submit(single(f"j{step}", only_on=wanted, priority=draw.choice(list(Priority)[1:4])))
        elif draw.random() < 0.7 and (running := sorted(world.running())):
            world.end(draw.choice(running))
        else:
            name = draw.choice(sorted(nodes))
            nodes[name] = draw.choice("abc")
            goes_on |= {(job, name) for job in world.running() if name in world.nodes_of(job)}
            world.tell(NodeJoined(world.now, labelled(name, 2, zone=nodes[name])))
            world.settle()
        free = dict.fromkeys(nodes, 2)
        for job in world.running():
            (node,) = world.nodes_of(job)
            free[node] -= 1
            assert nodes[node] in zones_of(world, job) or (job, node) in goes_on
        idle = {zone for name, zone in nodes.items() if free[name]}
        waiting = [job for job, record in world.core.jobs.items() if record.state is JobState.QUEUED]
        assert not [job for job in waiting if idle & zones_of(world, job)]
        check_everything(world.core)


def zones_of(world: World, job: str) -> set[str]:
    selection = world.core.jobs[job].job.only_on
    return set(selection[0][0].values) if selection else set("abc")
