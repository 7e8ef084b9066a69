"""Awkward moments: limits across preemption and suspension, refusals at the wrong time, jobs behind a blocked head."""

from __future__ import annotations

import gc

import pytest
from worlds import World, asks, elastic, gang, machine, single

from millpond.model.decisions import Suspend
from millpond.model.events import Ended, JobSubmitted, Refused, ResumeRequested, StopRequested, SuspendRequested
from millpond.model.hardware.nodes import Pool
from millpond.model.reasons import Cause
from millpond.model.states import JobState, Outcome
from millpond.model.workloads import Priority
from millpond.scheduling.feasibility.request_classes import RequestClass
from millpond.scheduling.ordering.arrivals import REMEMBERED
from millpond.scheduling.placement.shapes import Shape
from millpond.scheduling.settings import Settings


def test_a_time_limit_counts_service_and_not_the_catching_up_after_a_preemption() -> None:
    world = World(machine("n", 1))
    world.submit(single("low", priority=Priority.LOW, time_limit_s=60))
    world.submit(single("high", priority=Priority.HIGH), lasting=10)
    world.go_to(20)
    assert world.state("low") is JobState.RUNNING
    world.go_to(200)
    assert world.state("low") is JobState.FAILED


def test_a_time_limit_still_holds_after_a_suspension() -> None:
    world = World(machine("n", 1))
    world.submit(single("j", time_limit_s=60))
    world.go_to(10)
    world.tell(SuspendRequested(10, "j"))
    world.go_to(100)
    world.tell(ResumeRequested(100, "j"))
    world.go_to(140)
    assert world.state("j") is JobState.RUNNING
    world.go_to(5000)
    assert world.state("j") is JobState.FAILED


def test_a_job_that_reached_its_time_limit_says_so_however_it_then_ended() -> None:
    world = World(machine("n", 2))
    for name in ("heeds", "ignores"):
        world.submit(single(name, time_limit_s=60))
    world.core.decide(60)
    world.core.handle(Ended(61, "heeds", 1, Outcome.STOPPED, exit_code=143))
    world.core.handle(Ended(90, "ignores", 1, Outcome.STOPPED, exit_code=137, detail="killed"))
    told = {name: world.core.jobs[name].tasks[0].detail for name in ("heeds", "ignores")}
    assert told == {
        "heeds": "it reached its time limit of 1m",
        "ignores": "it reached its time limit of 1m; killed",
    }


def test_what_an_earlier_run_died_of_is_not_told_of_a_later_one() -> None:
    world = World(machine("n", 1))
    world.submit(single("j", retries=1))
    world.core.handle(Ended(5, "j", 1, Outcome.NODE_LOST, detail="the machine went down"))
    world.go_to(10)
    world.tell(StopRequested(10, "j"))
    world.go_to(100)
    assert world.state("j") is JobState.CANCELLED
    assert world.core.jobs["j"].tasks[0].detail == ""


def test_room_of_a_suspended_job_is_given_out_only_once_it_is_confirmed() -> None:
    world = World(machine("n", 1, swap_mib=80_000))
    world.submit(single("s"))
    world.core.handle(SuspendRequested(5, "s", True))
    (suspend,) = [decision for decision in world.core.decide(5) if isinstance(decision, Suspend)]
    world.core.handle(JobSubmitted(5, single("other")))
    assert world.core.decide(5) == []
    world.core.handle(Refused(6, suspend.id, "no"))
    assert world.core.decide(6) == []
    assert world.core.jobs["s"].state is JobState.RUNNING


def test_a_cycle_is_due_when_a_minimum_run_time_ends() -> None:
    world = World(machine("n", 4), settings=Settings(ordering="edf"))
    world.submit(single("low", 4, priority=Priority.LOW, minimum_run_s=100))
    world.go_to(50)
    world.submit(single("high", 4, priority=Priority.HIGH))
    assert world.core.next_wakeup(50) == 100
    assert world.why("high").cause is Cause.VICTIMS_PROTECTED


def test_behind_a_blocked_head_of_a_strict_ordering_no_remedy_is_offered() -> None:
    world = World(machine("n", 4), settings=Settings(ordering="fifo"))
    world.submit(single("x", 3))
    world.submit(single("big", 4))
    world.submit(single("small", 1))
    reason = world.why("small")
    assert (reason.cause, reason.blocked_by, reason.remedy) == (Cause.BEHIND, "big", None)


@pytest.mark.parametrize(("ordering", "helps"), [("fifo", False), ("sjf", True)])
def test_no_change_is_offered_to_the_head_of_a_strict_ordering_that_would_put_it_behind_others(
    ordering: str, helps: bool
) -> None:
    world = World(machine("n", 4), settings=Settings(ordering=ordering))
    world.submit(single("x", 3))
    world.submit(single("big", 4), lasting=10, known=True)
    alone = world.why("big").remedy
    assert alone is not None
    assert alone.value == "1"
    world.submit(single("next", 3), lasting=100, known=True)
    assert (world.why("big").remedy is not None) is helps


@pytest.mark.parametrize("ordering", ["fifo", "sjf", "ssf"])
def test_a_blocked_head_of_a_strict_ordering_holds_up_its_own_pool_alone(ordering: str) -> None:
    nodes = (machine("n", 4), machine("m", 4, pool="other"))
    world = World(*nodes, pools=[Pool("other")], settings=Settings(ordering=ordering))
    world.submit(single("x", 3))
    world.submit(single("big", 4), lasting=10, known=True)
    world.submit(single("small", 1), lasting=100, known=True)
    for number in (1, 2):
        world.submit(single(f"o{number}", 3, pool="other"), lasting=30, known=True)
    assert world.running() == {"x", "o1"}
    assert world.why("small").cause is Cause.BEHIND
    reason = world.why("o2")
    assert reason.cause is Cause.NO_ROOM
    assert reason.start is not None
    assert (reason.start.earliest_at, reason.start.latest_at) == (30.0, 30.0)
    world.submit(single("o3", 1, pool="other"), lasting=100, known=True)
    assert world.why("o3").blocked_by == "o2"


def test_a_gang_whose_growth_is_refused_goes_on_at_its_size_and_grows_later() -> None:
    world = World(machine("n", 4))
    world.submit(single("x", 3))
    world.submit(elastic("e", (1, 2, 2), asks(1)))
    world.refusing["e"] = False
    world.end("x")
    assert world.state("e") is JobState.RUNNING
    world.go_to(world.now + 60)
    assert len(world.nodes_of("e")) == 2


def test_what_is_reserved_for_a_job_does_not_stand_in_the_way_of_a_higher_class() -> None:
    world = World(machine("n", 2))
    world.submit(single("long", 2))
    world.submit(single("second", 2))
    world.submit(single("urgent", 1, priority=Priority.HIGH))
    assert world.state("urgent") is JobState.RUNNING


@pytest.mark.long
def test_of_requests_of_jobs_that_are_forgotten_only_the_latest_take_memory() -> None:
    gc.freeze()  # what other tests left, millions of objects, is not looked at
    world = World(machine("n", 4), settings=Settings(typical_mix=((asks(1), 1),)))
    cached, before = 400, _living()
    for number in range(2 * REMEMBERED):
        world.submit(gang(f"j{number}", 1, asks(1, memory_mib=1_000 + number)))
        world.end(f"j{number}")
        world.core.forget(f"j{number}")
    demands, shapes = _living()
    assert demands <= before[0] + REMEMBERED
    assert shapes <= before[1] + cached + REMEMBERED
    assert not world.core.jobs


def _living() -> tuple[int, int]:
    gc.collect()
    living = gc.get_objects()
    demands, shapes = (sum(type(each) is kind for each in living) for kind in (RequestClass, Shape))
    return demands, shapes
