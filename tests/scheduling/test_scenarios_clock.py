"""A clock that is set forward: what is counted in seconds goes on as if it had not been."""

from __future__ import annotations

from worlds import CARD_MIB, World, machine, single

from ledgers import check_everything
from millpond.model.events import ClockJumped, SuspendRequested
from millpond.model.hardware.nodes import Pool
from millpond.model.states import JobState
from millpond.model.workloads import Priority

DAY_S = 86_400.0


def set_forward(world: World, seconds: float = DAY_S) -> None:
    world.now += seconds
    world.tell(ClockJumped(world.now, seconds))
    world.settle()


def test_a_time_limit_does_not_count_what_never_passed() -> None:
    world = World(machine("n", 1))
    world.submit(single("j", time_limit_s=100.0))
    world.go_to(60)
    set_forward(world)
    world.go_to(DAY_S + 99)
    assert world.state("j") is JobState.RUNNING
    world.go_to(DAY_S + 101)
    assert world.state("j") is JobState.FAILED
    check_everything(world.core)


def test_nor_does_one_of_a_job_that_is_suspended_meanwhile() -> None:
    world = World(machine("n", 1))
    world.submit(single("j", time_limit_s=100.0))
    world.go_to(60)
    world.tell(SuspendRequested(world.now, "j"))
    world.settle()
    set_forward(world)
    assert world.core.jobs["j"].service_s(world.now) == 60.0
    check_everything(world.core)


def test_work_that_left_for_others_waits_for_room_as_long_as_ever() -> None:
    world = World(
        machine("n", 1, swap_mib=CARD_MIB), pools=(Pool(suspends=True, turn_s=0.0, longest_suspended_s=600.0),)
    )
    world.submit(single("low", priority=Priority.LOW))
    world.submit(single("high", priority=Priority.HIGH))
    assert world.state("low") is JobState.SUSPENDED
    set_forward(world)
    world.go_to(DAY_S + 590)
    assert world.state("low") is JobState.SUSPENDED
    world.go_to(DAY_S + 610)
    assert world.state("low") is JobState.QUEUED


def test_a_minimum_run_time_protects_for_its_whole_length() -> None:
    world = World(machine("n", 1))
    world.submit(single("low", priority=Priority.LOW, minimum_run_s=600.0))
    set_forward(world)
    world.submit(single("high", priority=Priority.HIGH))
    assert world.running() == {"low"}
    world.go_to(DAY_S + 601)
    assert world.running() == {"high"}


def test_fair_share_counts_no_use_for_it() -> None:
    world = World(machine("n", 2))
    world.submit(single("mine", user="ada"), single("hers", user="bob"))
    world.end("hers")
    world.go_to(100)
    usage = world.core._state.usage
    capacity = world.core._state.cluster.capacity.amount
    before = usage.dominant_shares(usage.snapshot(), capacity, world.now)
    set_forward(world)
    assert usage.dominant_shares(usage.snapshot(), capacity, world.now) == before
