"""Where two promises meet: topology and preemption, size changes and loss, pools and reservations, quota and gangs."""

from __future__ import annotations

import pytest
from worlds import World, asks, elastic, gang, machine, queue, single

from ledgers import check_everything
from millpond.model.decisions import Stop
from millpond.model.errors import InvalidInputError
from millpond.model.events import (
    DesiredCountChanged,
    DeviceHealthChanged,
    Ended,
    JobSubmitted,
    NodeJoined,
    NodeLost,
    Refused,
    ResumeRequested,
    SuspendRequested,
)
from millpond.model.hardware.devices import DeviceHealth
from millpond.model.hardware.nodes import Pool
from millpond.model.hardware.topology import Level
from millpond.model.reasons import Cause
from millpond.model.states import JobState, Outcome
from millpond.model.workloads import GangRule, Job, Priority, Role
from millpond.scheduling.settings import PreemptionCost, Settings


def test_nobody_is_ended_for_a_gang_that_would_still_not_lie_together() -> None:
    world = World(machine("a", 2, rack_name="r1"), machine("b", 2, rack_name="r2"))
    world.submit(single("x", 2, priority=Priority.LOW), single("y", 2, priority=Priority.LOW))
    world.go_to(100)
    world.tell(NodeJoined(world.now, machine("c", 4, rack_name="r3", schedulable=False)))
    high = gang("high", 2, asks(2), priority=Priority.HIGH, together=Level.RACK, together_required=True)
    world.submit(high)
    assert world.of_kind(Stop) == []
    assert world.state("high") is JobState.QUEUED


def test_a_request_that_names_one_resource_too_many_is_refused_and_changes_nothing() -> None:
    world = World(machine("a", 4))
    for number in range(8):
        world.submit(gang(f"j{number}", 1, asks(0, extras=[(f"x{number}", 1)])))
    before = world.core.snapshot()
    with pytest.raises(InvalidInputError):
        world.core.handle(JobSubmitted(world.now, gang("bad", 1, asks(0, extras=[("x8", 1)]))))
    assert world.core.snapshot() == before
    world.submit(single("good"))
    assert world.state("good") is JobState.RUNNING


def test_a_gang_is_not_called_impossible_because_of_the_order_in_which_its_roles_are_laid_out() -> None:
    world = World(machine("x", 1, model="X"), machine("y", 1, model="Y"))
    picky, easy = Role.rigid(asks(1, models=["X"]), 1, "picky"), Role.rigid(asks(1, cpus=8), 1, "easy")
    assert world.core.check(Job("g", (easy, picky))) is None


def test_a_gang_that_asks_for_more_of_a_named_resource_than_there_is_is_called_impossible() -> None:
    world = World(machine("a", 4, extras=(("rdma", 1),)))
    reason = world.core.check(gang("g", 2, asks(1, extras=[("rdma", 1)])))
    assert reason is not None
    assert reason.cause is Cause.IMPOSSIBLE


def test_a_gang_whose_roles_cannot_share_the_cards_there_are_is_called_impossible() -> None:
    world = World(machine("a", 1))
    whole, part = Role.rigid(asks(1), 1, "whole"), Role.rigid(asks(0, card_mib=4_000), 2, "part")
    reason = world.core.check(Job("g", (whole, part)))
    assert reason is not None
    assert reason.cause is Cause.IMPOSSIBLE


@pytest.mark.parametrize("desired", [1, 3])
def test_a_gang_may_change_its_size_while_room_is_being_made_for_it(desired: int) -> None:
    world = World(machine("a", 4))
    world.lingering = {"x"}
    world.submit(gang("x", 4, asks(1), priority=Priority.LOW))
    world.go_to(100)
    world.submit(elastic("high", (1, 2, 4), asks(1), priority=Priority.HIGH))
    assert world.why("high").cause is Cause.ROOM_BEING_MADE
    world.tell(DesiredCountChanged(world.now, "high", "worker", desired))
    world.settle()
    world.leave("x")
    check_everything(world.core)
    assert len(world.nodes_of("high")) == desired


def test_a_gang_never_shrinks_below_the_minimum_of_one_of_its_roles() -> None:
    world = World(machine("a", 4))
    roles = (Role.rigid(asks(1), 1, "chief"), Role(asks(1), 3, 1, 3, "helper"))
    world.submit(Job("g", roles, gang_rule=GangRule.SHRINK, retries=1))
    world.end("g", Outcome.USER_ERROR, 0, exit_code=1)
    assert world.core.jobs["g"].attempt == 2
    assert len(world.nodes_of("g")) == 4


def test_tasks_that_are_no_longer_wanted_do_not_count_against_the_guarantee() -> None:
    world = World(machine("a", 4), queues=[queue("team", guarantee=2), queue("other")])
    world.submit(gang("x", 4, asks(1), queue="other"))
    world.go_to(100)
    world.tell(JobSubmitted(world.now, elastic("e", (1, 4, 4), asks(1), queue="team")))
    world.tell(DesiredCountChanged(world.now, "e", "worker", 2))
    world.settle()
    assert len(world.nodes_of("e")) == 2


def test_a_refusal_that_comes_after_the_end_of_its_tasks_changes_nothing() -> None:
    world = World(machine("a", 1))
    world.tell(JobSubmitted(world.now, single("x")))
    (start,) = world.tick()
    world.tell(Ended(world.now, "x", 1, Outcome.NODE_LOST))
    world.tell(Refused(world.now, start.id, "too late"))
    check_everything(world.core)
    world.settle()
    assert world.state("x") is JobState.RUNNING
    assert world.core.jobs["x"].failures == 0


def test_asking_why_does_not_change_where_random_placement_puts_the_next_job() -> None:
    world = World(*(machine(f"n{number}", 2) for number in range(12)), settings=Settings(placement="random"))
    world.submit(*(single(f"j{number}", 2) for number in range(6)))
    world.submit(single("waits", 4))
    silent = world.core.fork()
    for _ in range(3):
        world.why("waits")
    event = JobSubmitted(world.now, gang("next", 3, asks(2)))
    world.core.handle(event)
    silent.handle(event)
    assert world.core.decide(world.now) == silent.decide(world.now)


def test_the_first_in_line_of_every_pool_has_its_own_reservation() -> None:
    world = World(
        machine("a", 2), machine("b", 2, pool="other"), pools=[Pool("other")], settings=Settings(ordering="edf")
    )
    world.submit(single("a0"), single("a1"), lasting=1e6, known=True)
    world.submit(single("first here", 2, deadline_s=1.0))
    world.submit(single("b0", pool="other"), lasting=50, known=True)
    world.submit(single("b1", pool="other"), lasting=100, known=True)
    world.submit(single("first there", 2, pool="other", deadline_s=2.0), lasting=10, known=True)
    for number in range(10):
        world.go_to(world.now + 50)
        small = single(f"s{number}", pool="other", deadline_s=1000.0 + number)
        world.submit(small, lasting=100, known=True)
    assert world.core.jobs["first there"].first_started_at == 100


def test_room_made_for_a_gang_that_must_share_a_rack_lies_in_one_rack() -> None:
    world = World(
        machine("a", 2, rack_name="r1"), machine("b", 2, rack_name="r2"), machine("c", 2, rack_name="r2"),
    )  # fmt: skip
    world.submit(*(single(job, 2, priority=Priority.LOW) for job in "xyz"))
    world.go_to(100)
    world.submit(gang("high", 2, asks(2), priority=Priority.HIGH, together=Level.RACK, together_required=True))
    assert sorted(world.nodes_of("high")) == ["b", "c"]
    assert len(world.of_kind(Stop)) == 2


def test_an_elastic_gang_starts_in_the_size_that_its_queue_allows() -> None:
    world = World(machine("a", 4), queues=[queue("small", limit=2)])
    job = elastic("e", (1, 4, 4), asks(1), queue="small")
    assert world.core.check(job) is None
    world.submit(job)
    assert world.state("e") is JobState.RUNNING
    assert len(world.nodes_of("e")) == 2


def test_an_elastic_gang_of_a_higher_class_takes_what_can_be_freed() -> None:
    world = World(machine("a", 2))
    world.submit(single("stays", preemptible=False), single("leaves", priority=Priority.LOW))
    world.go_to(100)
    world.submit(elastic("high", (1, 2, 2), asks(1), priority=Priority.HIGH))
    assert world.state("high") is JobState.RUNNING
    assert world.state("stays") is JobState.RUNNING


def test_suspended_work_does_not_go_on_on_a_card_that_others_use() -> None:
    world = World(machine("a", 1))
    world.submit(single("x"))
    world.tell(SuspendRequested(world.now, "x"))
    world.settle()
    world.tell(DeviceHealthChanged(world.now, "a", "a-0", DeviceHealth.BUSY_ELSEWHERE))
    world.tell(ResumeRequested(world.now, "x"))
    assert world.settle() == []
    world.tell(DeviceHealthChanged(world.now, "a", "a-0", DeviceHealth.OK))
    world.settle()
    assert world.state("x") is JobState.RUNNING


def test_random_placement_goes_on_alike_after_a_restore_although_a_node_was_lost() -> None:
    world = World(*(machine(f"n{number}", 2) for number in range(6)), settings=Settings(placement="random"))
    world.tell(NodeLost(world.now, "n0"))
    twin = world.core.fork()
    event = JobSubmitted(world.now, gang("next", 3, asks(1)))
    world.core.handle(event)
    twin.handle(event)
    assert world.core.decide(world.now) == twin.decide(world.now)


def test_a_task_that_was_no_longer_wanted_does_not_come_back_when_its_device_is_lost() -> None:
    world = World(machine("a", 2), machine("b", 2))
    world.submit(elastic("e", (1, 2, 2), asks(2)))
    world.lingering = {"e"}
    world.tell(DesiredCountChanged(world.now, "e", "worker", 1))
    world.settle()
    world.tell(NodeLost(world.now, world.core.jobs["e"].tasks[1].placement.node))  # type: ignore[union-attr]
    world.settle()
    assert world.state("e") is JobState.RUNNING
    assert len(world.nodes_of("e")) == 1
    assert world.core.jobs["e"].attempt == 1


def test_a_gang_that_shrank_is_whole_again_when_it_runs_anew() -> None:
    world = World(machine("a", 4))
    world.submit(elastic("g", (1, 4, 4), asks(1), gang_rule=GangRule.SHRINK))
    world.tell(NodeLost(world.now, "a"))
    world.settle()
    world.tell(NodeJoined(world.now, machine("a", 4)))
    world.settle()
    assert len(world.nodes_of("g")) == 4


def test_an_ordering_that_replans_keeps_its_hands_off_work_that_may_not_be_preempted() -> None:
    world = World(machine("a", 1), settings=Settings(ordering="srtf", preempt=True))
    world.submit(single("x", preemptible=False), lasting=1000, known=True)
    world.go_to(10)
    world.submit(single("y"), lasting=10, known=True)
    assert world.running() == {"x"}


@pytest.mark.parametrize("cost", [PreemptionCost(), PreemptionCost(0.0, 0.0)])
def test_an_ordering_that_replans_keeps_gangs_together_that_must_be(cost: PreemptionCost) -> None:
    settings = Settings(ordering="srtf", preempt=True, preemption_cost=cost)
    world = World(machine("a", 3), machine("b", 2), settings=settings)
    world.submit(single("x", 2), lasting=100, known=True)
    near = gang("g", 2, asks(1), together=Level.NODE, together_required=True)
    world.submit(single("y", 2, preemptible=False), lasting=1000, known=True)
    world.submit(near, lasting=200, known=True)
    assert world.running() == {"x", "y"}
    world.go_to(100)
    assert len(set(world.nodes_of("g"))) == 1


@pytest.mark.parametrize("cost", [PreemptionCost(), PreemptionCost(0.0, 0.0)])
def test_an_ordering_that_replans_ends_nobody_for_work_that_its_queue_keeps_out(cost: PreemptionCost) -> None:
    settings = Settings(ordering="srtf", preempt=True, preemption_cost=cost)
    world = World(machine("a", 2), settings=settings, queues=[queue("small", limit=1), queue("other")])
    world.submit(single("x", queue="small", preemptible=False), single("y", queue="other"), lasting=1000, known=True)
    world.go_to(10)
    world.submit(single("short", queue="small"), lasting=10, known=True)
    assert world.running() == {"x", "y"}
    assert world.of_kind(Stop) == []


def test_an_ordering_that_replans_starts_an_elastic_gang_with_what_fits() -> None:
    settings = Settings(ordering="srtf", preempt=True, preemption_cost=PreemptionCost(0.0, 0.0))
    world = World(machine("a", 2), settings=settings)
    world.submit(elastic("e", (1, 4, 4), asks(1)), lasting=100, known=True)
    assert len(world.nodes_of("e")) == 2
