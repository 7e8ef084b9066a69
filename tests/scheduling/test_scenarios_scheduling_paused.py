"""Trouble that concerns the whole place: nothing new starts, what runs goes on, and who waits is told why."""

from __future__ import annotations

import json

from worlds import World, asks, elastic, gang, machine, single

from millpond.model.events import NodeJoined, NodeLost, PoolChanged, SchedulingPaused, SchedulingResumed
from millpond.model.hardware.nodes import Pool
from millpond.model.reasons import Cause
from millpond.model.workloads import GangRule, Priority
from millpond.scheduling.scheduler import Scheduler

FULL = "1 GiB is free on the server's disk; remove something"


def hold(world: World, cause: Cause = Cause.DISK_FULL, text: str = FULL) -> None:
    world.tell(SchedulingPaused(world.now, cause, text))
    world.settle()


def free(world: World, cause: Cause = Cause.DISK_FULL) -> None:
    world.tell(SchedulingResumed(world.now, cause))
    world.settle()


def test_nothing_new_starts_while_starts_are_held_and_all_of_it_does_afterwards() -> None:
    world = World(machine("a", 2))
    world.submit(single("old"))
    hold(world)
    world.submit(single("new"))
    assert world.running() == {"old"}
    reason = world.core.explain("new", world.now)
    assert (reason.cause, reason.summary, reason.position) == (Cause.DISK_FULL, f"nothing new starts: {FULL}", 1)
    assert (reason.remedy, reason.start) == (None, None)
    free(world)
    assert world.running() == {"old", "new"}


def test_nobody_is_asked_to_leave_for_work_that_may_not_start() -> None:
    world = World(machine("a", 1))
    world.submit(single("low", priority=Priority.LOW))
    hold(world)
    world.submit(single("high", priority=Priority.HIGH))
    assert world.running() == {"low"}
    free(world)
    assert world.running() == {"high"}


def test_each_kind_of_trouble_has_to_be_over() -> None:
    world = World(machine("a", 1))
    hold(world)
    hold(world, Cause.NOT_ISOLATED, "install bubblewrap")
    world.submit(single("j"))
    free(world)
    assert world.running() == set()
    assert world.core.explain("j", world.now).cause is Cause.NOT_ISOLATED
    free(world, Cause.NOT_ISOLATED)
    assert world.running() == {"j"}


def test_a_gang_does_not_grow_while_starts_are_held() -> None:
    world = World(machine("a", 1), machine("b", 1))
    world.submit(elastic("j", (1, 2, 2), asks(1), gang_rule=GangRule.SHRINK))
    world.tell(NodeLost(world.now, "b"))
    world.settle()
    hold(world)
    world.tell(NodeJoined(world.now, machine("b", 1)))
    world.settle()
    assert size(world, "j") == 1
    free(world)
    assert size(world, "j") == 2


def size(world: World, job: str) -> int:
    """How many of its tasks hold something."""
    return sum(task.holding is not None for task in world.core.jobs[job].tasks)


def test_a_scheduler_that_holds_starts_has_nothing_to_wake_up_for() -> None:
    world = World(machine("a", 1))
    hold(world)
    world.submit(single("j"))
    assert world.core.next_wakeup(world.now) is None


def test_held_starts_survive_a_snapshot() -> None:
    world = World(machine("a", 1))
    hold(world)
    world.submit(single("j"))
    plain = json.loads(json.dumps(world.core.snapshot()))
    again = Scheduler.restore(plain)
    assert again.holds == {Cause.DISK_FULL: FULL}
    assert again.decide(world.now) == []


def test_a_pool_that_hands_out_more_cpus_than_there_are_takes_as_many_tasks_as_its_factor_says() -> None:
    node = machine("a", 0, cpu_milli=4_000)
    world = World(node, pools=(Pool(cpu_factor_milli=1_500),))
    world.submit(*(gang(f"j{number}", 1, asks(0, cpus=2)) for number in range(4)))
    assert len(world.running()) == 3
    (view,) = world.core.node_views()
    assert (view.node.cpu_milli, view.cpu_capacity_milli, view.free.cpu_milli) == (4_000, 6_000, 0)
    world.tell(PoolChanged(world.now, Pool(cpu_factor_milli=2_000)))
    world.settle()
    assert len(world.running()) == 4


def test_one_task_never_gets_more_cpus_than_its_node_has() -> None:
    world = World(machine("a", 0, cpu_milli=4_000), pools=(Pool(cpu_factor_milli=2_000),))
    refusal = world.core.check(gang("j", 1, asks(0, cpus=5)))
    assert refusal is not None
    assert "the largest node has 4" in refusal.summary


def test_a_slice_with_more_memory_than_any_card_is_told_how_much_there_is() -> None:
    world = World(machine("a", 1, card_mib=40_000), machine("b", 1, card_mib=80_000))
    refusal = world.core.check(gang("j", 1, asks(0.5, card_mib=90_000)))
    assert refusal is not None
    assert refusal.summary == "a task asks for 90000 MiB of a card's memory; the largest card has 80000 MiB"
    assert refusal.remedy is not None
    assert refusal.remedy.change == "ask for at most 80000 MiB of memory, or for whole cards"
