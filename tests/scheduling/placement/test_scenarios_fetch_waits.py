"""Jobs wait for a node that holds what they need if they are under way sooner so, and never longer than that saves."""

from __future__ import annotations

import pytest
from redone import redo, stored
from worlds import World, asks, gang, machine, restarted, single

from millpond.model.contents import Content
from millpond.model.events import DurationPredicted, JobSubmitted, NodeContents, StopRequested
from millpond.model.reasons import Cause
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import Settings

FACES = Content("data:faces@3", 6_000)
NEEDED = (FACES,)
FETCH_S = 60.0


def busy_world(expected_s: float, *, ordering: str = "default", lasting: float | None = None) -> World:
    """The node that holds the faces should be busy for so long; the other one would fetch them for a minute."""
    world = World(machine("near", 1), machine("far", 1), settings=Settings(ordering=ordering, preempt=False))
    for node in ("near", "far"):
        world.tell(NodeContents(0.0, node, NEEDED if node == "near" else (), 100))
    world.submit(single("there", contents=NEEDED), lasting=lasting or expected_s)
    world.tell(DurationPredicted(0.0, "there", expected_s, expected_s + 1.0))
    assert world.nodes_of("there") == ["near"]
    return world


def test_a_job_waits_for_the_node_that_holds_what_it_needs_if_that_is_free_before_it_would_be_fetched() -> None:
    world = busy_world(50.0)
    world.submit(single("job", contents=NEEDED), lasting=10.0, known=True)
    assert world.nodes_of("job") == []
    reason = world.core.explain("job", world.now)
    assert reason.cause is Cause.NEARER_CONTENTS
    assert reason.summary == (
        "there is room, but node near, where less of what it needs is missing, should be free in 50s; "
        "to fetch it elsewhere takes 1m"
    )
    assert reason.start is not None
    assert (reason.start.likely_at, reason.start.latest_at) == (50.0, FETCH_S)
    assert reason.start.basis == "node near should be free then; at the latest it takes what there is"
    world.go_to(50.0)
    assert world.nodes_of("job") == ["near"]


def test_it_does_not_wait_for_a_node_that_is_free_later_than_it_would_be_fetched() -> None:
    world = busy_world(70.0)
    world.submit(single("job", contents=NEEDED), lasting=10.0, known=True)
    assert world.nodes_of("job") == ["far"]


def test_it_waits_no_longer_than_the_fetch_takes_although_it_is_expected_still() -> None:
    world = busy_world(50.0, lasting=1_000.0)
    world.submit(single("job", contents=NEEDED), lasting=10.0, known=True)
    world.go_to(49.0)
    assert world.nodes_of("job") == []
    world.go_to(FETCH_S)
    assert world.nodes_of("job") == ["far"]


def test_the_room_that_it_does_not_take_is_for_all_others() -> None:
    world = busy_world(50.0)
    world.submit(single("job", contents=NEEDED), lasting=10.0, known=True)
    world.submit(single("other"), lasting=10.0, known=True)
    assert (world.nodes_of("job"), world.nodes_of("other")) == ([], ["far"])


@pytest.mark.parametrize("ordering", ["fifo", "sjf"])
def test_nobody_waits_so_where_all_behind_would_wait_too(ordering: str) -> None:
    world = busy_world(50.0, ordering=ordering)
    world.submit(single("job", contents=NEEDED), lasting=10.0, known=True)
    assert world.nodes_of("job") == ["far"]


def test_a_short_fetch_is_not_worth_a_wait() -> None:
    world = busy_world(50.0)
    world.tell(NodeContents(world.now, "far", (), 3_000))
    world.submit(single("job", contents=NEEDED), lasting=10.0, known=True)
    assert world.nodes_of("job") == ["far"]


def test_a_wait_outlives_a_restart_of_the_server_and_a_fork() -> None:
    world = busy_world(50.0)
    world.submit(single("job", contents=NEEDED), lasting=10.0, known=True)
    core = world.core
    for twin in (core.fork(), restarted(core)):
        assert twin.next_wakeup(world.now) == core.next_wakeup(world.now)
        assert [decision.job for decision in twin.decide(FETCH_S)] == ["job"]


def test_a_wait_that_began_behind_the_last_snapshot_ends_no_later_after_a_crash() -> None:
    world = busy_world(50.0, lasting=1_000.0)
    before = stored(world.core.snapshot())
    world.go_to(10.0)
    turn = [JobSubmitted(10.0, single("job", contents=NEEDED)), DurationPredicted(10.0, "job", 10.0, 11.0)]
    for event in turn:
        world.core.handle(event)
    assert world.core.decide(10.0) == []
    core = Scheduler.restore(before)
    redo(core, turn, 10.0, [], world.core.changed_claims())
    assert core.next_wakeup(20.0) == 10.0 + FETCH_S
    assert core.decide(20.0) == []
    assert [decision.job for decision in core.decide(10.0 + FETCH_S)] == ["job"]


def test_a_job_that_is_stopped_waits_no_longer() -> None:
    world = busy_world(50.0)
    world.submit(single("job", contents=NEEDED), lasting=10.0, known=True)
    world.tell(StopRequested(world.now, "job"))
    world.submit(single("other", contents=NEEDED), lasting=10.0, known=True)
    world.go_to(49.0)
    assert world.nodes_of("other") == []
    assert world.core.snapshot()["fetch_waits"] == {"other": FETCH_S}


def test_gangs_take_what_there_is() -> None:
    world = World(machine("near", 2), machine("far", 2), settings=Settings(preempt=False))
    for node in ("near", "far"):
        world.tell(NodeContents(0.0, node, NEEDED if node == "near" else (), 100))
    world.submit(single("there", 2, contents=NEEDED), lasting=50.0, known=True)
    world.submit(gang("gang", 2, asks(1), contents=NEEDED), lasting=10.0, known=True)
    assert world.nodes_of("gang") == ["far", "far"]
