"""A scheduler that was restored or forked in the middle of something goes on exactly where the first one was."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from worlds import World, asks, elastic, gang, machine, queue, restarted, single

from ledgers import check_everything
from millpond.model.events import (
    Confirmed,
    DesiredCountChanged,
    DurationPredicted,
    Ended,
    Event,
    JobSubmitted,
    MigrateRequested,
    NodeClosed,
    NodeJoined,
    NodeLost,
    PolicyChanged,
    ResumeRequested,
    StopRequested,
    SuspendRequested,
)
from millpond.model.hardware.nodes import Cordon
from millpond.model.reasons import Cause
from millpond.model.states import Outcome
from millpond.model.tenancy.cells import CellCount
from millpond.model.workloads import Priority
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import PreemptionCost, Settings

FREE = PreemptionCost(0.0, 0.0)


def plain(core: Scheduler) -> dict[str, Any]:
    """A snapshot as it is stored."""
    stored: dict[str, Any] = json.loads(json.dumps(core.snapshot()))
    return stored


def making_room() -> World:
    """Two lingering victims on two nodes make room for a gang of a higher class."""
    world = World(machine("a", 2), machine("b", 2))
    world.lingering = {"x", "y"}
    world.submit(single("x", 2, priority=Priority.LOW), single("y", 2, priority=Priority.LOW))
    world.go_to(100)
    world.submit(gang("high", 2, asks(2), priority=Priority.HIGH))
    return world


def losing_a_node_of_a_claim() -> World:
    world = making_room()
    world.tell(NodeLost(world.now, "b"))
    return world


def withdrawing_the_successor() -> World:
    world = making_room()
    world.tell(StopRequested(world.now, "high"))
    world.core.forget("high")
    return world


def a_forecast_for_running_work() -> World:
    world = World(machine("a", 2))
    world.submit(single("x", 2))
    world.tell(DurationPredicted(world.now, "x", 1000.0, 1000.0))
    return world


def a_gang_that_is_growing() -> World:
    """One card has just been given to it; the engine has not confirmed."""
    world = World(machine("a", 1), settings=Settings(preempt=True, preemption_cost=FREE))
    world.submit(elastic("e", (1, 2, 2), asks(1)))
    world.go_to(1000)
    world.tell(NodeJoined(world.now, machine("b", 1)))
    world.tick()
    return world


def a_gang_that_is_getting_smaller() -> World:
    """One of its tasks was told to end and lingers."""
    world = World(machine("a", 2), settings=Settings(preempt=True, preemption_cost=FREE))
    world.submit(elastic("e", (1, 2, 2), asks(1)))
    world.go_to(1000)
    world.lingering = {"e"}
    world.tell(DesiredCountChanged(world.now, "e", "worker", 1))
    world.settle()
    return world


def waiting_work_that_may_displace() -> World:
    world = World(machine("a", 1), settings=Settings(preempt=True, preemption_cost=FREE))
    world.submit(single("long"), lasting=10_000, known=True)
    world.go_to(1)
    world.tell(JobSubmitted(world.now, single("middle")))
    world.tell(DurationPredicted(world.now, "middle", 5_000.0, 5_000.0))
    return world


def work_that_may_displace_where_nobody_runs_any_more() -> World:
    world = World(machine("a", 2), machine("b", 2), settings=Settings(preempt=True, preemption_cost=FREE))
    world.submit(single("x", 2), lasting=10)
    world.go_to(20)
    world.tell(NodeClosed(world.now, "b", Cordon(world.now, reason="repair")))
    world.tell(JobSubmitted(world.now, gang("waits", 2, asks(2))))
    return world


def jobs_that_have_ended() -> World:
    """Nothing runs any more; what was learnt from the ends counts on."""
    world = World(machine("a", 4))
    world.submit(*(single(f"j{number}") for number in range(4)), lasting=100)
    world.go_to(50)
    world.submit(single("last"), lasting=500)
    world.go_to(400)
    return world


def two_jobs_resumed_in_the_other_order() -> World:
    world = World(machine("a", 1), machine("b", 1))
    world.submit(single("x", priority=Priority.LOW), single("y", priority=Priority.LOW))
    for job in ("y", "x"):
        world.tell(SuspendRequested(world.now, job))
    world.settle()
    for job in ("y", "x"):
        world.tell(ResumeRequested(world.now, job))
    world.settle()
    return world


def a_time_limit_that_was_interrupted() -> World:
    world = World(machine("a", 1))
    world.submit(single("x", time_limit_s=100.0))
    world.go_to(50)
    world.tell(SuspendRequested(world.now, "x"))
    world.settle()
    world.go_to(80)
    world.tell(ResumeRequested(world.now, "x"))
    return world


def lengths_that_nobody_knows() -> World:
    world = World(machine("a", 1), settings=Settings(ordering="sjf"))
    world.submit(single("x"), single("y"))
    return world


@dataclass(frozen=True)
class Moment:
    """A moment at which a scheduler is restored."""

    build: Callable[[], World]

    def __str__(self) -> str:
        return self.build.__name__.replace("_", "-")


MOMENTS = [
    Moment(build)
    for build in (
        making_room,
        losing_a_node_of_a_claim,
        withdrawing_the_successor,
        a_forecast_for_running_work,
        a_gang_that_is_growing,
        a_gang_that_is_getting_smaller,
        waiting_work_that_may_displace,
        work_that_may_displace_where_nobody_runs_any_more,
        jobs_that_have_ended,
        two_jobs_resumed_in_the_other_order,
        a_time_limit_that_was_interrupted,
        lengths_that_nobody_knows,
    )
]


@pytest.mark.parametrize("moment", MOMENTS, ids=str)
def test_a_restored_scheduler_goes_on_as_the_first_one_would_have(moment: Moment) -> None:
    world = moment.build()
    first, second, third = world.core, restarted(world.core), world.core.fork()
    assert plain(second) == plain(first)
    check_everything(second)
    now = world.now
    news: list[Event] = [
        JobSubmitted(now, single("urgent", 1, priority=Priority.HIGH)),
        JobSubmitted(now, single("unknown", 1)),
        JobSubmitted(now, gang("wide", 2, asks(1))),
        DurationPredicted(now, "wide", 10.0, 20.0),
    ]
    for event in news:
        for core in (first, second, third):
            core.handle(event)
    for instant in (now, now, now + 1, now + 60, now + 1_000):
        decisions = first.decide(instant)
        assert second.decide(instant) == decisions
        assert third.decide(instant) == decisions
        for decision in decisions:
            for core in (first, second, third):
                core.handle(Confirmed(instant, decision.id))
        assert second.next_wakeup(instant) == first.next_wakeup(instant) == third.next_wakeup(instant)
        assert second._claims.reservations == first._claims.reservations == third._claims.reservations


def test_restored_settings_are_the_same_settings() -> None:
    settings = Settings(typical_mix=((asks(0.5), 3),), preemption_cost=FREE, tiresias_thresholds_gpu_s=(1.0, 2.0))
    assert restarted(Scheduler(settings)).settings == settings


def test_a_snapshot_is_json_that_any_reader_accepts() -> None:
    """Lengths that nobody knows are infinite inside; JSON has no word for that."""
    json.dumps(lengths_that_nobody_knows().core.snapshot(), allow_nan=False)


def test_what_is_tried_on_a_fork_does_not_happen() -> None:
    world = making_room()
    before = world.core.snapshot()
    fork = world.core.fork()
    fork.handle(NodeJoined(world.now, machine("c", 8)))
    fork.handle(JobSubmitted(world.now, single("new", 8)))
    assert fork.decide(world.now)
    assert world.core.snapshot() == before


@pytest.mark.parametrize("placement", ["default", "random"])
def test_asking_why_a_job_waits_changes_nothing_that_is_decided_later(placement: str) -> None:
    world = World(*(machine(f"n{number}", 2) for number in range(6)), settings=Settings(placement=placement))
    world.submit(*(single(f"x{number}", 2) for number in range(6)))
    world.submit(gang("g", 3, asks(1)), single("s"))
    twin = world.core.fork()
    assert world.why("g").cause is Cause.NO_ROOM
    assert world.why("s").remedy is None
    for core in (world.core, twin):
        for number in range(6):
            core.handle(Ended(world.now, f"x{number}", 1, Outcome.SUCCESS, exit_code=0))
    assert world.core.decide(world.now) == twin.decide(world.now)


@pytest.mark.parametrize("copy", [restarted, Scheduler.fork])
def test_a_copy_counts_what_gangs_give_back_for_no_guarantee_either(copy: Callable[[Scheduler], Scheduler]) -> None:
    world = growing_on_a_guarantee()
    twin = copy(world.core)
    event = JobSubmitted(world.now, single("own", 2, queue="team", preemptible=False))
    for core in (world.core, twin):
        core.handle(event)
    assert [each.job for each in world.core.decide(world.now)] == ["own"]
    assert [each.job for each in twin.decide(world.now)] == ["own"]


def test_nor_does_it_once_the_policy_is_another() -> None:
    world = growing_on_a_guarantee()
    world.tell(PolicyChanged(world.now, "fair", "default", preempt=False, reserve=True))
    world.submit(single("own", 2, queue="team", preemptible=False))
    assert world.running() == {"grown", "own"}


def growing_on_a_guarantee() -> World:
    """A gang of which one task stays has grown to two on a guarantee of three cards."""
    world = World(machine("n", 4), queues=(queue("team", guarantee=3),))
    world.submit(elastic("grown", (1, 2, 2), asks(1), queue="team", preemptible=False, rest_preemptible=True))
    return world


def test_what_work_is_leaving_counts_for_the_cells_of_others_as_it_did_before_a_restart() -> None:
    lab = queue("lab", guarantee=2, cells=(CellCount("switch", 1),))
    world = World(
        machine("n", 4, remaps=True, swap_mib=500_000), queues=(lab, queue("others", guarantee=2)),
    )  # fmt: skip
    world.slow.add("moves")
    world.submit(single("moves", queue="others", preemptible=False))
    world.tell(MigrateRequested(world.now, "moves", ("n/3",)))
    world.submit(single("guest", queue="others"), single("cell", 2, queue="lab"))
    twin = restarted(world.core)
    assert "a cell that queue lab is owed" in world.why("cell").summary
    assert twin.explain("cell", world.now) == world.core.explain("cell", world.now)
    assert twin.cell_map() == world.core.cell_map()
    world.leave_devices("moves")
    assert "cell" in world.running()
