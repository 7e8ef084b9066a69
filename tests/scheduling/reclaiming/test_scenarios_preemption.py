"""Preemption by priority: who may be asked, who is asked, and how it goes."""

from __future__ import annotations

import pytest
from scenes import Scene, play
from worlds import World, asks, gang, machine, single

from millpond.model.decisions import Start, Stop
from millpond.model.events import Ended, StopRequested
from millpond.model.hardware.nodes import Node
from millpond.model.reasons import Cause
from millpond.model.states import JobState, Outcome
from millpond.model.workloads import Checkpoint, CheckpointMode, Priority
from millpond.scheduling.settings import PreemptionCost, Settings

LOW, HIGH, CRITICAL = Priority.LOW, Priority.HIGH, Priority.CRITICAL
ONE = (machine("n", 4),)
TWO = (machine("n0", 4), machine("n1", 4))

SCENES = [
    Scene(
        "a higher class ends lower work for which there is no room otherwise",
        ONE,
        (single("high", 4, priority=HIGH),),
        "high",
        before=(single("low", 4, priority=LOW),),
        stopped="low",
    ),
    Scene(
        "nobody is ended while there is free room",
        TWO,
        (single("high", 4, priority=HIGH),),
        "low high",
        before=(single("low", 4, priority=LOW),),
    ),
    Scene("equals do not end each other", ONE, (single("b", 4),), "a", before=(single("a", 4),)),
    Scene(
        "a lower class never ends a higher one",
        ONE,
        (single("low", 4, priority=LOW),),
        "high",
        before=(single("high", 4, priority=HIGH),),
    ),
    Scene(
        "the youngest run is the cheapest victim",
        TWO,
        (single("high", 4, priority=HIGH),),
        "old high",
        before=(single("old", 4, priority=LOW), single("young", 4, priority=LOW)),
        stopped="young",
    ),
    Scene(
        "only as many victims leave as the newcomer needs",
        ONE,
        (single("high", 2, priority=HIGH),),
        "w x high",
        before=tuple(single(name, priority=LOW) for name in "wxyz"),
        stopped="y z",
    ),
    Scene(
        "the lowest class leaves first even where that costs more",
        TWO,
        (single("critical", 4, priority=CRITICAL),),
        "high critical",
        before=(single("low", 4, priority=LOW), single("high", 4, priority=HIGH)),
        stopped="low",
    ),
    Scene(
        "nobody is stopped when the successor would still not fit",
        TWO,
        (gang("high", 2, asks(4), priority=HIGH),),
        "rock low",
        before=(single("rock", 4, preemptible=False, priority=LOW), single("low", 4, priority=LOW)),
    ),
    Scene(
        "a gang gets the whole of its room in one plan",
        TWO,
        (gang("high", 2, asks(4), priority=HIGH),),
        "high",
        before=(single("a", 4, priority=LOW), single("b", 4, priority=LOW)),
        stopped="a b",
    ),
    Scene(
        "work is not ended before its minimum run time",
        ONE,
        (single("high", 4, priority=HIGH),),
        "low",
        before=(single("low", 4, priority=LOW, minimum_run_s=100),),
    ),
    Scene(
        "work whose preemption budget is used up is not ended",
        ONE,
        (single("high", 4, priority=HIGH),),
        "low",
        before=(single("low", 4, priority=LOW, preemption_budget=0),),
    ),
]


@pytest.mark.parametrize("scene", SCENES, ids=str)
def test_preemption_by_priority(scene: Scene) -> None:
    play(scene)


def test_a_victim_gets_notice_and_its_own_grace_and_the_newcomer_starts_only_when_it_has_left() -> None:
    world = World(*ONE)
    world.lingering.add("low")
    checkpoint = Checkpoint(CheckpointMode.SIGNAL, "SIGUSR1", 45.0)
    world.submit(single("low", 4, priority=LOW, checkpoint=checkpoint))
    world.submit(single("high", 4, priority=HIGH))
    (stop,) = world.of_kind(Stop)
    assert (stop.job, stop.cause, stop.grace_s, stop.for_job) == ("low", Cause.PREEMPTED, 45.0, "high")
    assert (world.state("low"), world.state("high")) == (JobState.STOPPING, JobState.QUEUED)
    assert world.why("low").cause is Cause.PREEMPTED
    world.go_to(45)
    assert world.state("high") is JobState.QUEUED
    world.leave("low")
    assert world.running() == {"high"}
    assert world.of_kind(Start, "high")[0].cause is Cause.PREEMPTED


@pytest.mark.parametrize("nodes", [(machine("a", 1), machine("b", 1)), (machine("n", 2),)])
def test_a_newcomer_waits_for_its_own_victims_alone(nodes: tuple[Node, ...]) -> None:
    world = World(*nodes)
    world.lingering.add("x")
    world.submit(single("x", priority=LOW), single("y", priority=LOW))
    world.submit(single("h", priority=HIGH), single("i", priority=HIGH))
    (waits,) = {"h", "i"} - world.running()
    reason = world.why(waits)
    assert (reason.cause, reason.blocked_by, dict(reason.numbers)) == (Cause.ROOM_BEING_MADE, "x", {"victims": 1})
    world.leave("x")
    assert world.running() == {"h", "i"}


def test_newcomers_into_the_room_of_one_victim_wait_for_that_one() -> None:
    world = World(machine("a", 2), machine("b", 1))
    world.lingering |= {"x", "y"}
    world.submit(single("x", 2, priority=LOW), single("y", priority=LOW))
    world.submit(*(single(id_, priority=HIGH) for id_ in "hij"))
    assert not world.running()
    world.leave("x")
    assert len(world.running()) == 2
    world.leave("y")
    assert world.running() == {"h", "i", "j"}


def test_a_place_that_needs_what_others_leave_too_is_kept_until_they_have_left() -> None:
    world = World(machine("n", 4))
    world.lingering.add("x")
    world.submit(gang("y", 1, asks(1, cpus=30), priority=LOW))
    world.go_to(10)
    world.submit(gang("x", 1, asks(1, cpus=30), priority=LOW))
    world.go_to(20)
    world.submit(gang("h", 1, asks(1, cpus=10), priority=HIGH), gang("i", 1, asks(1, cpus=40), priority=HIGH))
    world.submit(gang("late", 1, asks(1, cpus=30)))
    assert not world.running()
    assert [stop.job for stop in world.of_kind(Stop)] == ["x", "y"]
    world.leave("x")
    assert world.running() == {"h", "i"}
    assert len(world.of_kind(Stop)) == 2


def test_protected_work_is_ended_once_its_minimum_run_time_is_over() -> None:
    world = World(*ONE)
    world.submit(single("low", 4, priority=LOW, minimum_run_s=100))
    world.go_to(50)
    world.submit(single("high", 4, priority=HIGH))
    assert world.why("high").cause is Cause.VICTIMS_PROTECTED
    world.go_to(99)
    assert world.running() == {"low"}
    world.go_to(101)
    assert world.running() == {"high"}


def test_a_preemption_budget_counts_the_preemptions_of_a_whole_life() -> None:
    world = World(*ONE)
    world.submit(single("low", 4, priority=LOW, preemption_budget=1))
    world.submit(single("high", 4, priority=HIGH), lasting=10)
    assert world.running() == {"high"}
    world.go_to(20)
    assert world.running() == {"low"}
    world.submit(single("higher", 4, priority=CRITICAL))
    assert world.running() == {"low"}
    assert world.why("higher").cause is Cause.VICTIMS_PROTECTED


def test_a_preempted_job_keeps_the_service_of_its_checkpoint_and_its_place_by_arrival() -> None:
    world = World(*ONE, settings=Settings(ordering="fifo", preemption_cost=PreemptionCost(0, 0)))
    world.lingering.add("low")
    world.submit(single("low", 4, priority=LOW))
    world.go_to(40)
    world.submit(single("high", 4, priority=HIGH), lasting=10)
    world.submit(single("later", 4, priority=LOW))
    world.tell(Ended(world.now, "low", 1, Outcome.STOPPED, 0, service_s=30.0))
    world.settle()
    low = world.core.jobs["low"]
    assert (low.state, low.attained_s, low.preemptions) == (JobState.QUEUED, 30.0, 1)
    world.go_to(50)
    assert world.running() == {"low"}
    assert low.attempt == 2
    assert low.service_s(60) == 40.0


def test_a_job_that_is_stopped_while_it_is_being_preempted_does_not_come_back() -> None:
    world = World(*ONE)
    world.lingering.add("low")
    world.submit(single("low", 4, priority=LOW))
    world.submit(single("high", 4, priority=HIGH), lasting=10)
    world.tell(StopRequested(world.now, "low", "somebody"))
    world.settle()
    world.leave("low")
    assert world.state("low") is JobState.CANCELLED
    world.go_to(20)
    assert world.running() == set()


def test_a_victim_that_reaches_its_end_within_the_grace_has_succeeded() -> None:
    world = World(*ONE)
    world.lingering.add("low")
    world.submit(single("low", 4, priority=LOW))
    world.submit(single("high", 4, priority=HIGH))
    world.end("low", Outcome.SUCCESS, 0, exit_code=0)
    assert world.state("low") is JobState.SUCCEEDED
    assert world.running() == {"high"}


@pytest.mark.parametrize(("mode", "running"), [(CheckpointMode.SIGNAL, {"short"}), (CheckpointMode.NONE, {"long"})])
def test_the_ordering_counts_all_that_a_job_loses_that_saves_nothing(mode: CheckpointMode, running: set[str]) -> None:
    world = World(*ONE, settings=Settings(preempt=True))
    world.submit(single("long", 4, checkpoint=Checkpoint(mode)), lasting=36_000, known=True)
    world.go_to(32_000)
    world.submit(single("short", 4), lasting=600, known=True)
    assert world.running() == running


def test_a_job_that_lost_hours_of_work_is_not_taken_for_a_new_one() -> None:
    world = World(*ONE)
    world.submit(single("low", 4, priority=LOW))
    world.go_to(36_000)
    world.submit(single("high", 4, priority=HIGH))
    world.submit(single("new", 4, priority=LOW))
    low, new = (world.core.jobs[job] for job in ("low", "new"))
    assert (low.attained_s, low.reached_s) == (0, 36_000)
    assert low.key[0] > 36_000 > new.key[0], "it is known to take longer than that"
