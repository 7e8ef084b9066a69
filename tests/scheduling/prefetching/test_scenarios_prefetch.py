"""What a job needs is fetched to the node kept for it: once, in time, and no longer than wanted."""

from __future__ import annotations

import pytest
from redone import essential, redo, stored
from worlds import World, machine, restarted, single

from millpond.model.contents import Content
from millpond.model.decisions import Prefetch
from millpond.model.events import (
    Confirmed,
    JobSubmitted,
    NodeContents,
    NodeLost,
    Refused,
    StopRequested,
)
from millpond.model.reasons import Cause
from millpond.model.states import JobState
from millpond.model.workloads import Priority
from millpond.scheduling.prefetching.kept_places import AHEAD_S
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import Settings

FACES = Content("data:faces@3", 6_000)
FETCH_RATE = 100
"""So the faces take a minute."""


def busy_world(soon_s: float = 100.0, *, later_s: float = 50_000.0, fetch_rate: int = FETCH_RATE) -> World:
    """Two nodes of a card, in use for so long; none holds the faces."""
    world = World(machine("soon", 1), machine("late", 1), settings=Settings(preempt=False))
    for node in ("soon", "late") if fetch_rate >= 0 else ():
        world.tell(NodeContents(0.0, node, (), fetch_rate))
    world.submit(single("first"), lasting=soon_s, known=True)
    world.submit(single("second"), lasting=later_s, known=True)
    return world


def wait(world: World, job: str = "job") -> None:
    world.submit(single(job, contents=(FACES,)), lasting=10.0, known=True)


def fetches(world: World) -> list[tuple[str, str, Cause]]:
    return [(each.job, each.node, each.cause) for each in world.decisions if isinstance(each, Prefetch)]


def test_the_node_that_is_kept_for_the_first_that_waits_fetches_what_it_needs_once() -> None:
    world = busy_world()
    wait(world)
    (fetch,) = [each for each in world.decisions if isinstance(each, Prefetch)]
    assert (fetch.job, fetch.attempt, fetch.node, fetch.contents) == ("job", 1, "soon", (FACES,))
    assert fetch.cause is Cause.PREFETCHED
    assert world.core.explain("job", 0.0).summary.endswith("; what it needs is being fetched to soon")
    world.go_to(60.0)
    world.tell(Confirmed(60.0, fetch.id))
    world.tell(NodeContents(60.0, "soon", (FACES,), FETCH_RATE))
    assert "fetched" not in world.core.explain("job", 60.0).summary
    world.go_to(100.0)
    assert world.core.jobs["job"].tasks[0].placement is not None
    assert world.core.jobs["job"].tasks[0].placement.node == "soon"
    assert len(fetches(world)) == 1


def test_nobody_behind_the_first_has_anything_fetched() -> None:
    world = busy_world()
    wait(world)
    wait(world, "other")
    assert fetches(world) == [("job", "soon", Cause.PREFETCHED)]


@pytest.mark.parametrize("fetch_rate", [-1, 0])
def test_where_no_node_reports_what_it_holds_or_how_fast_it_fetches_nothing_is_fetched(fetch_rate: int) -> None:
    world = busy_world(fetch_rate=fetch_rate)
    wait(world)
    assert fetches(world) == []


def test_a_node_that_holds_it_fetches_nothing() -> None:
    world = busy_world()
    world.tell(NodeContents(0.0, "soon", (FACES,), FETCH_RATE))
    wait(world)
    assert fetches(world) == []


def test_nothing_is_fetched_long_before_there_is_room() -> None:
    world = busy_world(AHEAD_S + 500.0)
    wait(world)
    world.go_to(499.0)
    assert fetches(world) == []
    world.go_to(500.0)
    assert fetches(world) == [("job", "soon", Cause.PREFETCHED)]


def test_nothing_is_fetched_where_the_start_itself_would_do_most_of_it() -> None:
    world = busy_world(29.0)
    wait(world)
    assert fetches(world) == []


@pytest.mark.parametrize("is_late", [False, True])
def test_a_fetch_ends_with_its_job_and_is_not_heard_of_again(is_late: bool) -> None:
    world = busy_world()
    wait(world)
    (fetch,) = [each for each in world.decisions if isinstance(each, Prefetch)]
    world.tell(StopRequested(world.now, "job"))
    if is_late:
        world.tell(Confirmed(world.now, fetch.id))
    world.settle()
    over = [] if is_late else [("job", "soon", Cause.PREFETCH_OVER)]
    assert fetches(world)[1:] == over
    assert world.core.snapshot()["pending"] == []
    world.tell(Refused(world.now, fetch.id, "it was given up"))
    assert not world.core._state.prefetches.tried, "what is told of ended jobs would pile up"
    wait(world, "other")
    assert fetches(world)[1:] == [*over, ("other", "soon", Cause.PREFETCHED)]


def test_a_fetch_ends_when_its_job_starts_on_another_node() -> None:
    world = busy_world()
    wait(world)
    world.end("second")
    assert world.core.jobs["job"].tasks[0].placement is not None
    assert fetches(world) == [("job", "soon", Cause.PREFETCHED), ("job", "soon", Cause.PREFETCH_OVER)]


def test_what_could_not_be_fetched_is_not_tried_again_and_the_job_starts_all_the_same() -> None:
    world = busy_world()
    wait(world)
    (fetch,) = [each for each in world.decisions if isinstance(each, Prefetch)]
    world.tell(Refused(world.now, fetch.id, "the registry does not have it"))
    world.go_to(100.0)
    assert world.core.jobs["job"].tasks[0].placement is not None
    assert len(fetches(world)) == 1


def test_of_a_node_that_is_lost_no_answer_is_waited_for() -> None:
    world = busy_world()
    wait(world)
    (fetch,) = [each for each in world.decisions if isinstance(each, Prefetch)]
    world.tell(NodeLost(world.now, "soon"))
    assert world.core.snapshot()["pending"] == []
    world.tell(Refused(world.now, fetch.id, "its pod was deleted"))
    world.settle()


def test_a_node_that_others_are_about_to_start_on_fetches_nothing_for_the_first_behind_them() -> None:
    world = World(machine("only", 1))
    world.tell(NodeContents(0.0, "only", (), FETCH_RATE))
    world.submit(single("low", priority=Priority.LOW), lasting=500.0, known=True)
    world.lingering.add("low")
    world.submit(single("high", priority=Priority.HIGH), lasting=200.0, known=True)
    assert world.stopped == ["low"]
    wait(world)
    assert fetches(world) == []
    world.leave("low")
    assert fetches(world) == [("job", "only", Cause.PREFETCHED)]


@pytest.mark.parametrize("fetch_rate", [FETCH_RATE, 1])
def test_while_others_make_room_for_a_job_its_node_fetches_what_it_needs_however_long_that_takes(
    fetch_rate: int,
) -> None:
    world = World(machine("only", 1))
    world.tell(NodeContents(0.0, "only", (), fetch_rate))
    world.submit(single("low", priority=Priority.LOW), lasting=500.0, known=True)
    world.lingering.add("low")
    world.submit(single("high", priority=Priority.HIGH, contents=(FACES,)), lasting=200.0, known=True)
    assert world.stopped == ["low"]
    assert fetches(world) == [("high", "only", Cause.PREFETCHED)]
    assert world.core.explain("high", 0.0).summary.endswith("; what it needs is being fetched to only")
    world.leave("low")
    assert world.core.jobs["high"].state is JobState.RUNNING
    assert len(fetches(world)) == 1


def test_a_restarted_server_and_a_fork_go_on_with_what_is_being_fetched() -> None:
    world = busy_world()
    wait(world)
    for twin in (world.core.fork(), restarted(world.core)):
        assert twin.decide(1.0) == []
        twin.handle(StopRequested(2.0, "job"))
        assert [type(each) for each in twin.decide(2.0)] == [Prefetch]


def test_a_fetch_that_began_behind_the_last_snapshot_is_known_after_a_crash() -> None:
    world = busy_world()
    before = stored(world.core.snapshot())
    turn = [JobSubmitted(10.0, single("job", contents=(FACES,)))]
    world.core.handle(turn[0])
    decided = world.core.decide(10.0)
    core = Scheduler.restore(before)
    redo(core, turn, 10.0, decided, world.core.changed_claims())
    assert essential(core) == essential(world.core)
    assert core.decide(11.0) == world.core.decide(11.0) == []
    end = [StopRequested(12.0, "job")]
    world.core.handle(end[0])
    decided = world.core.decide(12.0)
    redo(core, end, 12.0, decided, world.core.changed_claims())
    assert [type(each) for each in decided] == [Prefetch]
    assert essential(core) == essential(world.core)
