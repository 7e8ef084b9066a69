"""Jobs go back to their queue on request, and change their class of priority while they wait or run."""

from __future__ import annotations

import json
from typing import Any

import pytest
from worlds import World, asks, elastic, machine, queue, restarted, single

from ledgers import check_everything
from millpond.model.decisions import Stop
from millpond.model.errors import ConflictError, InvalidInputError, NotFoundError
from millpond.model.events import (
    DesiredCountChanged,
    Kept,
    NodeLost,
    PriorityChanged,
    RequeueRequested,
    StopRequested,
    SuspendRequested,
)
from millpond.model.reasons import Cause
from millpond.model.states import JobState, Outcome
from millpond.model.tenancy.cells import CellCount
from millpond.model.workloads import Checkpoint, GangRule, Kind, Priority
from millpond.scheduling.scheduler import Scheduler


def requeue(world: World, job: str = "j") -> None:
    world.tell(RequeueRequested(world.now, job, "ada"))


def give(world: World, job: str, priority: Priority) -> None:
    world.tell(PriorityChanged(world.now, job, priority, "ada"))


def test_a_running_job_gets_its_grace_and_starts_anew_without_a_failure_or_a_preemption() -> None:
    world = World(machine("n", 1))
    world.submit(single("j", checkpoint=Checkpoint(grace_s=40.0)))
    world.lingering = {"j"}
    requeue(world)
    world.settle()
    (stop,) = world.of_kind(Stop)
    assert (stop.cause, stop.grace_s) == (Cause.REQUEUED, 40.0)
    assert world.state("j") is JobState.STOPPING
    world.leave("j")
    record = world.core.jobs["j"]
    assert (world.state("j"), record.attempt) == (JobState.RUNNING, 2)
    assert (record.failures, record.preemptions) == (0, 0)


def test_a_requeued_job_waits_behind_those_who_came_before_it_went_back() -> None:
    world = World(machine("n", 1))
    world.submit(single("j"))
    world.go_to(10.0)
    world.submit(single("k"))
    requeue(world)
    world.settle()
    assert world.running() == {"k"}
    assert world.state("j") is JobState.QUEUED


@pytest.mark.parametrize("swap", [False, True])
def test_a_job_that_was_suspended_on_request_starts_anew_and_does_not_wait_for_a_resume(swap: bool) -> None:
    world = World(machine("n", 1, swap_mib=64_000))
    world.submit(single("j"))
    world.tell(SuspendRequested(world.now, "j", swap))
    world.settle()
    requeue(world)
    world.settle()
    assert (world.state("j"), world.core.jobs["j"].attempt) == (JobState.RUNNING, 2)


def test_a_job_that_lost_its_run_while_it_was_suspended_lines_up_again() -> None:
    world = World(machine("n", 1), machine("m", 1))
    world.submit(single("j"))
    world.tell(SuspendRequested(world.now, "j"))
    world.settle()
    placement = world.core.jobs["j"].tasks[0].placement
    assert placement is not None
    world.tell(NodeLost(world.now, placement.node))
    world.settle()
    assert world.state("j") is JobState.QUEUED
    requeue(world)
    world.settle()
    assert world.state("j") is JobState.RUNNING


def test_a_second_request_and_one_for_a_preempted_job_change_nothing_more() -> None:
    world = World(machine("n", 1))
    world.submit(single("j"))
    world.lingering = {"j"}
    requeue(world)
    requeue(world)
    world.settle()
    assert len(world.of_kind(Stop)) == 1
    world.leave("j")
    assert world.core.jobs["j"].attempt == 2


def test_a_program_that_ends_well_on_notice_has_succeeded() -> None:
    world = World(machine("n", 1))
    world.submit(single("j"))
    world.lingering = {"j"}
    requeue(world)
    world.settle()
    world.end("j")
    assert world.state("j") is JobState.SUCCEEDED


def _stopping(world: World) -> None:
    world.lingering = {"j"}
    world.tell(StopRequested(world.now, "j"))


def _ended(world: World) -> None:
    world.end("j")


def _kept(world: World) -> None:
    world.tell(Kept(world.now, "j", 1, 0, Outcome.USER_ERROR, world.now + 100.0, 3))


def _at_rest(world: World) -> None:
    world.tell(DesiredCountChanged(world.now, "j", "worker", 0))


@pytest.mark.parametrize(
    ("fields", "before", "error"),
    [
        ({}, _stopping, ConflictError),
        ({}, _ended, NotFoundError),
        ({"keep_s": 100.0}, _kept, ConflictError),
        ({"kind": Kind.SERVICE}, _at_rest, ConflictError),
        ({"gang_rule": GangRule.APART}, lambda _: None, ConflictError),
    ],
    ids=["being stopped", "ended", "kept", "at rest", "of others"],
)
def test_what_cannot_go_back_is_refused_and_nothing_changes(fields: dict[str, Any], before: Any, error: Any) -> None:
    world = World(machine("n", 1))
    world.submit(single("j", **fields))
    before(world)
    world.settle()
    state = json.dumps(world.core.snapshot())
    with pytest.raises(error):
        requeue(world)
    assert json.dumps(world.core.snapshot()) == state


def test_a_job_that_waits_in_line_is_where_it_would_go_back_to() -> None:
    world = World(machine("n", 1))
    world.submit(single("first"), single("j"))
    with pytest.raises(ConflictError, match="queued"):
        requeue(world)


def test_a_raised_job_goes_first_and_a_lowered_one_last() -> None:
    world = World(machine("n", 1))
    world.submit(single("busy", priority=Priority.CRITICAL))
    world.submit(single("a"), single("b"), single("c"))
    give(world, "c", Priority.HIGH)
    give(world, "a", Priority.LOW)
    for expected in ("c", "b", "a"):
        world.end(next(iter(world.running())))
        assert world.running() == {expected}
    check_everything(world.core)


def test_a_raised_job_displaces_what_its_new_class_may() -> None:
    world = World(machine("n", 1))
    world.submit(single("busy"), single("j"))
    assert world.running() == {"busy"}
    give(world, "j", Priority.HIGH)
    world.settle()
    assert world.running() == {"j"}


def test_a_running_job_that_is_raised_stays_and_one_that_is_lowered_leaves() -> None:
    world = World(machine("n", 2))
    world.submit(single("a"), single("b"))
    give(world, "a", Priority.CRITICAL)
    give(world, "b", Priority.LOW)
    world.submit(single("x"), single("y", priority=Priority.HIGH))
    assert world.running() == {"a", "y"}
    check_everything(world.core)


def test_a_class_that_the_queue_does_not_allow_is_refused_as_at_submission() -> None:
    world = World(machine("n", 1), queues=[queue("q", priorities=(Priority.LOW, Priority.NORMAL))])
    world.submit(single("j", queue="q"), single("k", queue="q"))
    for job in ("j", "k"):
        with pytest.raises(InvalidInputError, match="may have low, normal") as refused:
            give(world, job, Priority.HIGH)
        assert refused.value.remedy == "use priority low or normal, or another queue"
        give(world, job, Priority.LOW)


@pytest.mark.parametrize(("old", "new"), [(Priority.BACKGROUND, Priority.LOW), (Priority.LOW, Priority.BACKGROUND)])
def test_background_work_has_a_queue_of_its_own_and_is_submitted_again_instead(old: Priority, new: Priority) -> None:
    world = World(machine("n", 1))
    world.submit(single("j", priority=old))
    with pytest.raises(ConflictError, match="background"):
        give(world, "j", new)


def test_work_in_cells_is_in_them_with_its_new_class_and_a_restored_twin_decides_the_same() -> None:
    queues = [queue("q", guarantee=2, cells=(CellCount("switch", 1),)), queue("r")]
    world = World(machine("n", 4), queues=queues)
    world.submit(single("j", 2, queue="q"), single("k", 2, queue="q"), elastic("e", (1, 2, 2), asks(1), queue="q"))
    give(world, "j", Priority.LOW)
    give(world, "k", Priority.HIGH)
    world.settle()
    check_everything(world.core)
    twin = restarted(world.core)
    assert json.dumps(twin.snapshot()) == json.dumps(world.core.snapshot())
    for core in (twin, world.core):
        core.handle(PriorityChanged(world.now, "e", Priority.CRITICAL))
    assert twin.decide(world.now) == world.core.decide(world.now)


def test_a_replay_of_the_log_decides_the_same() -> None:
    world = World(machine("n", 2), queues=[queue("q", limit=3), queue("r", guarantee=1)])
    world.submit(single("a", queue="q"), single("b", queue="q"), single("c", queue="q"))
    give(world, "c", Priority.HIGH)
    world.settle()
    requeue(world, "c")
    world.settle()
    again = Scheduler()
    decided = []
    for event in world.log:
        if type(event).__name__ == "Tick":
            decided += again.decide(event.at)
        else:
            again.handle(event)
    assert decided == world.decisions
    assert [each.cause for each in decided if isinstance(each, Stop)] == [Cause.PREEMPTED, Cause.REQUEUED]


def test_what_a_queue_may_hold_is_counted_the_same_after_a_change() -> None:
    world = World(machine("n", 2), queues=[queue("q", limit=1)])
    world.submit(single("a", queue="q"), single("b", queue="q"))
    give(world, "a", Priority.HIGH)
    give(world, "b", Priority.CRITICAL)
    requeue(world, "a")
    world.settle()
    assert world.running() == {"b"}
    check_everything(world.core)
