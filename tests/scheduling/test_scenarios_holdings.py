"""What work holds: slices, over-commitment, extras, suspended work."""

from __future__ import annotations

from typing import Any

import pytest
from scenes import Scene, play
from worlds import World, asks, gang, machine, single

from ledgers import check_everything, overdrawn
from millpond.model.decisions import Resume, Suspend, SuspendMode
from millpond.model.errors import ConflictError
from millpond.model.events import Confirmed, DeviceHealthChanged, Ended, NodeJoined, ResumeRequested, SuspendRequested
from millpond.model.hardware.devices import DeviceHealth
from millpond.model.hardware.nodes import Pool, SharingPolicy
from millpond.model.reasons import Cause, Filter
from millpond.model.states import JobState, Outcome
from millpond.model.workloads import Priority

TWICE = Pool("default", SharingPolicy.OVERCOMMITTED, 2000)


def parts(count: int, gpus: float, **request: Any) -> tuple[Any, ...]:
    """Jobs p0, p1, ... that each ask for a part of one card."""
    return tuple(gang(f"p{i}", 1, asks(gpus, **request)) for i in range(count))


SCENES = [
    Scene("quarters share one card", (machine("n", 1),), parts(5, 0.25), "p0 p1 p2 p3"),
    Scene("a slice and a whole card do not share", (machine("n", 1),), (*parts(1, 0.25), single("whole")), "p0"),
    Scene(
        "one task of several cards takes whole cards", (machine("n", 3),), (*parts(1, 0.5), single("two", 2)), "p0 two"
    ),
    Scene("limits stay within a sliced card", (machine("n", 1),), parts(2, 0.5, limit=1.0), "p0"),
    Scene(
        "limits may exceed an overcommitted card up to its factor",
        (machine("n", 1),),
        parts(3, 0.25, limit=1.0),
        "p0 p1",
        pools=(TWICE,),
    ),
    Scene(
        "guarantees never exceed a card however much it is overcommitted",
        (machine("n", 1),),
        parts(2, 0.75),
        "p0",
        pools=(TWICE,),
    ),
    Scene("slices by memory alone fill the memory", (machine("n", 1),), parts(5, 0, card_mib=4_000), "p0 p1 p2 p3"),
    Scene(
        "memory named outright is counted beside the share of compute",
        (machine("n", 1),),
        parts(2, 0.25, card_mib=10_000),
        "p0",
    ),
    Scene("a card of unknown memory is cut by compute alone", (machine("n", 1, card_mib=0),), parts(3, 0.5), "p0 p1"),
    Scene("CPU work needs no card", (machine("n", 0),), (gang("cpu", 3, asks(0, cpus=8)),), "cpu"),
    Scene(
        "work waits for CPU though cards are free",
        (machine("n", 4, cpu_milli=6_000),),
        parts(2, 0.5, cpus=4),
        "p0",
    ),
    Scene(
        "a named extra resource is counted",
        (machine("n", 4, extras=(("rdma", 2),)),),
        parts(3, 1, extras=[("rdma", 1)]),
        "p0 p1",
    ),
    Scene(
        "a job that asks for an extra goes where it is",
        (machine("n0", 4), machine("n1", 4, extras=(("disk", 100),))),
        parts(1, 1, extras=[("disk", 60)]),
        "p0",
    ),
    Scene(
        "a job goes to a model that it accepts",
        (machine("n0", 1, model="T4"), machine("n1", 1, model="H100")),
        parts(2, 1, models=["H100"]),
        "p0",
    ),
    Scene(
        "a node that is cordoned takes nothing",
        (machine("n0", 4, schedulable=False), machine("n1", 1)),
        parts(2, 1),
        "p0",
    ),
    Scene(
        "a job stays in its pool",
        (machine("n0", 4, pool="other"), machine("n1", 1)),
        parts(2, 1),
        "p0",
        pools=(Pool("other"),),
    ),
]


@pytest.mark.parametrize("scene", SCENES, ids=str)
def test_what_fits_together(scene: Scene) -> None:
    world = play(scene)
    assert overdrawn(world.core._state.cluster) == ""


def test_the_filter_that_keeps_a_job_out_is_named() -> None:
    world = World(machine("n0", 1, extras=(("rdma", 1),)), machine("n1", 1))
    world.submit(*parts(2, 0.5, extras=[("rdma", 1)]))
    why = world.why("p1")
    assert why.cause is Cause.NO_ROOM
    assert dict(why.nodes) == {Filter.EXTRA_RESOURCE: 2}


def suspended(*, swap: bool, swap_mib: int = 16_000) -> World:
    """A job of a whole card, suspended at 10."""
    world = World(machine("n", 1, swap_mib=swap_mib))
    world.submit(single("s"))
    world.go_to(10)
    world.tell(SuspendRequested(world.now, "s", swap))
    world.settle()
    return world


def test_frozen_work_keeps_its_device_memory_and_gives_its_compute_back() -> None:
    world = suspended(swap=False)
    (suspend,) = world.of_kind(Suspend)
    assert (suspend.mode, suspend.cause) == (SuspendMode.FREEZE, Cause.SUSPEND_REQUESTED)
    (view,) = world.core.node_views()
    assert (view.devices[0].compute_free_milli, view.devices[0].memory_free_mib) == (1000, 0)
    assert view.free.swap_mib == 16_000
    assert view.devices[0].holders == ("s",)
    world.submit(single("other"))
    assert world.state("other") is JobState.QUEUED
    assert dict(world.why("other").nodes) == {Filter.DEVICE_MEMORY: 1}


def test_swapped_work_gives_its_whole_card_back_and_uses_the_swap_space_of_its_node() -> None:
    world = suspended(swap=True)
    (view,) = world.core.node_views()
    assert (view.devices[0].compute_free_milli, view.devices[0].memory_free_mib) == (1000, 16_000)
    assert view.free.swap_mib == 0
    world.submit(single("other"))
    assert world.running() == {"other"}


@pytest.mark.parametrize("swap", [False, True])
def test_suspended_work_keeps_its_cpus_where_its_engine_gives_them_to_nobody(swap: bool) -> None:
    node = machine("n", 2, cpu_milli=6_000, swap_mib=16_000, keeps_cpu=True)
    world = World(node)
    world.submit(gang("s", 1, asks(cpus=4)))
    world.tell(SuspendRequested(world.now, "s", swap))
    world.settle()
    world.submit(gang("other", 1, asks(0, cpus=4)), gang("small", 1, asks(0, cpus=2)))
    assert world.running() == {"small"}
    world.tell(ResumeRequested(world.now, "s"))
    world.settle()
    assert world.running() == {"s", "small"}
    check_everything(world.core)


def test_work_cannot_be_swapped_without_host_memory_for_it() -> None:
    world = World(machine("n", 1, swap_mib=15_999))
    world.submit(single("s"))
    with pytest.raises(ConflictError, match="sets 15999 MiB aside"):
        world.core.handle(SuspendRequested(world.now, "s", swap=True))
    world.settle()
    assert world.state("s") is JobState.RUNNING


def after_a_swap(priority: Priority) -> World:
    """A swapped job may go on, another has its card until 40, and one of a class waits behind that."""
    world = suspended(swap=True)
    world.submit(single("other", preemptible=False), lasting=30)
    world.tell(ResumeRequested(world.now, "s"))
    world.submit(single("waits", priority=priority), lasting=10)
    world.go_to(40)
    return world


def test_a_waiting_job_of_a_higher_class_goes_before_suspended_work() -> None:
    world = after_a_swap(Priority.HIGH)
    assert (world.running(), world.state("s")) == ({"waits"}, JobState.SUSPENDED)
    world.go_to(50)
    assert (world.running(), world.core.jobs["s"].attempt) == ({"s"}, 1)


def test_suspended_work_goes_before_a_waiting_job_of_its_own_class() -> None:
    world = after_a_swap(Priority.NORMAL)
    assert world.running() == {"s"}


def test_suspended_work_goes_on_in_room_that_a_higher_class_cannot_use() -> None:
    world = suspended(swap=True)
    world.submit(single("other", preemptible=False), lasting=30)
    world.tell(ResumeRequested(world.now, "s"))
    world.submit(single("large", 2, priority=Priority.HIGH))
    world.go_to(40)
    assert world.running() == {"s"}


def test_suspended_work_stays_out_of_room_that_others_are_leaving_for_a_higher_class() -> None:
    world = World(machine("n", 2, swap_mib=32_000))
    world.submit(single("s"))
    world.tell(SuspendRequested(world.now, "s", True))
    world.settle()
    world.submit(single("short", preemptible=False), lasting=30)
    world.submit(single("victim"))
    world.lingering = {"victim"}
    world.tell(ResumeRequested(world.now, "s"))
    world.submit(single("high", 2, priority=Priority.HIGH))
    world.go_to(30)
    assert world.state("s") is JobState.SUSPENDED
    world.leave("victim")
    assert world.running() == {"high"}


def test_a_resumed_job_goes_on_where_it_was_as_soon_as_its_card_is_free() -> None:
    world = suspended(swap=True)
    world.submit(single("other"), lasting=30)
    world.tell(ResumeRequested(world.now, "s"))
    world.settle()
    assert world.state("s") is JobState.SUSPENDED
    world.go_to(40)
    assert world.state("s") is JobState.RUNNING
    assert len(world.of_kind(Resume, "s")) == 1
    assert world.core.jobs["s"].attempt == 1
    assert world.core.jobs["s"].service_s(50) == 20.0


def test_suspended_work_does_not_resume_by_itself() -> None:
    world = suspended(swap=False)
    world.go_to(1000)
    assert world.state("s") is JobState.SUSPENDED
    assert world.why("s").cause is Cause.SUSPENDED


def test_suspended_work_that_ends_gives_everything_back() -> None:
    for swap in (False, True):
        world = suspended(swap=swap)
        world.tell(Ended(world.now, "s", 1, Outcome.USER_ERROR, 0, 1))
        world.settle()
        assert world.state("s") is JobState.FAILED
        (view,) = world.core.node_views()
        assert (view.devices[0].memory_free_mib, view.free.swap_mib) == (16_000, 16_000)


def device_of(world: World, job: str) -> str:
    """The device that a job of one card runs on."""
    placement = world.core.jobs[job].tasks[0].placement
    assert placement is not None
    return placement.grants[0].device


def test_work_on_a_device_that_fails_runs_again_elsewhere_and_nothing_starts_there() -> None:
    world = World(machine("n", 2))
    world.submit(single("a"))
    broken = device_of(world, "a")
    world.tell(DeviceHealthChanged(world.now, "n", broken, DeviceHealth.FAULTY, "it fell off the bus"))
    world.settle()
    assert world.running() == {"a"}
    assert device_of(world, "a") != broken
    assert (world.core.jobs["a"].attempt, world.core.jobs["a"].failures) == (2, 0)
    world.submit(single("b"))
    assert world.state("b") is JobState.QUEUED
    world.tell(DeviceHealthChanged(world.now, "n", broken, DeviceHealth.OK))
    world.settle()
    assert device_of(world, "b") == broken


def test_a_device_that_others_use_is_not_handed_out_and_what_runs_on_it_goes_on() -> None:
    world = World(machine("n", 2))
    world.submit(single("a"))
    for device in ("n-0", "n-1"):
        world.tell(DeviceHealthChanged(world.now, "n", device, DeviceHealth.BUSY_ELSEWHERE))
    world.submit(single("b"))
    assert world.running() == {"a"}


def test_work_starts_as_soon_as_a_node_joins_that_can_take_it() -> None:
    world = World(machine("n0", 1))
    world.submit(single("two", 2))
    assert world.why("two").cause is Cause.IMPOSSIBLE
    world.tell(NodeJoined(world.now, machine("n1", 2)))
    world.settle()
    assert world.nodes_of("two") == ["n1"]


def test_a_late_answer_to_an_earlier_suspension_does_not_count_for_the_present_one() -> None:
    world = World(machine("n", 1, swap_mib=64_000))
    world.submit(single("j"))
    world.tell(SuspendRequested(world.now, "j"))
    (first,) = world.tick()
    world.tell(ResumeRequested(world.now, "j"))
    world.tick()
    world.tell(SuspendRequested(world.now, "j", swap=True))
    (second,) = world.tick()
    world.tell(Confirmed(world.now, first.id))
    check_everything(world.core)
    world.submit(single("k"))
    assert world.running() == set()
    world.tell(Confirmed(world.now, second.id))
    world.settle()
    assert world.running() == {"k"}
