"""Services that nobody wants for now: they give everything back, wait in no line, and come back when wanted."""

from __future__ import annotations

import pytest
from worlds import World, asks, elastic, machine, single

from ledgers import check_everything
from millpond.model.decisions import Stop
from millpond.model.errors import InvalidInputError
from millpond.model.events import DesiredCountChanged, PolicyChanged, StopRequested
from millpond.model.reasons import Cause
from millpond.model.states import JobState
from millpond.model.workloads import Job, Kind
from millpond.scheduling.scheduler import Scheduler


def service(most: int = 2) -> Job:
    """Up to so many replicas, each with a card."""
    return elastic("s", (1, 1, most), asks(1), kind=Kind.SERVICE)


def rest(world: World, why: str = "no request for 5 minutes") -> None:
    """Nobody wants the service now."""
    world.tell(DesiredCountChanged(world.now, "s", "worker", 0, why))
    world.settle()


def wake(world: World, replicas: int = 1) -> None:
    """It is wanted again."""
    world.tell(DesiredCountChanged(world.now, "s", "worker", replicas))
    world.settle()


def test_a_service_at_rest_holds_no_card_and_says_what_wakes_it() -> None:
    world = World(machine("a", 1))
    world.submit(service())
    rest(world)
    (stop,) = [decision for decision in world.decisions if isinstance(decision, Stop)]
    assert stop.cause is Cause.SCALED_TO_ZERO
    world.submit(single("other"))
    assert world.state("other") is JobState.RUNNING, "the card is free for others"
    assert world.state("s") is JobState.QUEUED
    reason = world.why("s")
    assert (reason.cause, reason.summary) == (
        Cause.SCALED_TO_ZERO,
        "scaled to zero: no request for 5 minutes",
    )
    check_everything(world.core)


def test_it_comes_back_with_as_many_tasks_as_are_wanted_and_waits_for_room_like_others() -> None:
    world = World(machine("a", 2))
    world.submit(service())
    rest(world)
    world.submit(single("other", 2))
    wake(world, 2)
    assert world.why("s").cause is Cause.NO_ROOM
    world.end("other")
    assert (world.state("s"), len(world.nodes_of("s")), world.core.jobs["s"].attempt) == (JobState.RUNNING, 2, 2)
    check_everything(world.core)


def test_one_that_is_wanted_again_before_its_tasks_have_ended_runs_anew() -> None:
    world = World(machine("a", 1))
    world.submit(service())
    world.lingering.add("s")
    rest(world)
    assert world.state("s") is JobState.STOPPING
    wake(world)
    world.leave("s")
    assert (world.state("s"), world.core.jobs["s"].attempt) == (JobState.RUNNING, 2)


def test_one_that_waits_leaves_its_line_and_one_at_rest_can_be_stopped_for_good() -> None:
    world = World(machine("a", 1))
    world.submit(single("other"))
    world.submit(service())
    rest(world)
    world.end("other")
    assert world.state("s") is JobState.QUEUED, "there is room, and nobody wants it"
    world.tell(StopRequested(world.now, "s"))
    assert world.state("s") is JobState.CANCELLED


def test_it_stays_at_rest_through_a_snapshot_and_another_policy() -> None:
    world = World(machine("a", 1))
    world.submit(service())
    rest(world)
    core = Scheduler.restore(world.core.snapshot())
    core.handle(PolicyChanged(world.now, "fifo", "best-fit", preempt=False, reserve=True))
    assert core.decide(world.now) == []
    assert core.explain("s", world.now).cause is Cause.SCALED_TO_ZERO
    core.handle(DesiredCountChanged(world.now, "s", "worker", 1))
    assert [decision.job for decision in core.decide(world.now)] == ["s"]


def test_only_a_service_can_go_without_tasks() -> None:
    world = World(machine("a", 1))
    world.submit(elastic("s", (1, 1, 2), asks(1)))
    with pytest.raises(InvalidInputError, match="cannot go without tasks"):
        rest(world)
