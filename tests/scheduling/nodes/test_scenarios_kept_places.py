"""Kept places: a job that has failed for good stays where it was for a look inside, and ends as it had failed."""

from __future__ import annotations

from typing import Any

import pytest
from worlds import World, asks, elastic, gang, machine, queue, restarted, single

from ledgers import check_everything
from millpond.model.decisions import Start, Stop
from millpond.model.errors import ConflictError
from millpond.model.events import (
    DesiredCountChanged,
    DeviceHealthChanged,
    Kept,
    MigrateRequested,
    NodeClosed,
    NodeLost,
    StopRequested,
    SuspendRequested,
)
from millpond.model.hardware.devices import DeviceHealth
from millpond.model.hardware.nodes import Cordon, Pool
from millpond.model.reasons import Cause
from millpond.model.states import JobState, Outcome, TaskState
from millpond.model.windows import Window
from millpond.model.workloads import GangRule, Job, Priority

FAILED, QUEUED, RUNNING = JobState.FAILED, JobState.QUEUED, JobState.RUNNING
KEEP_S = 600.0


def fails(world: World, job: str = "j", task: int = 0, outcome: Outcome = Outcome.USER_ERROR) -> None:
    """A program fails with exit code 3, and its engine keeps its place."""
    attempt = world.core.jobs[job].attempt
    until = world.now + KEEP_S
    world.tell(Kept(world.now, job, attempt, task, outcome, until, 3, "exit code 3"))
    world.settle()


def kept(*others: Job, job: Job | None = None, **fields: Any) -> World:
    """A world of two cards; a job on one of them, or the one given, has failed and its place is kept."""
    world = World(
        machine("n", 2, remaps=True, swap_mib=100_000),
        queues=[queue("team", guarantee=2), queue("guest", borrows=True)],
    )
    world.submit(job or single("j", keep_s=KEEP_S, **fields), *others)
    fails(world)
    assert world.state("j") is RUNNING
    check_everything(world.core)
    return world


def assert_failed(world: World) -> None:
    """It has failed as its program did, and is not run again."""
    task = world.core.jobs["j"].tasks[0]
    assert (world.state("j"), task.outcome, task.exit_code) == (FAILED, Outcome.USER_ERROR, 3)
    assert task.detail == "exit code 3"
    assert len(world.of_kind(Start, "j")) == 1
    check_everything(world.core)


def test_a_kept_place_holds_its_card_and_says_until_when() -> None:
    world = kept()
    world.submit(single("big", 2))
    assert world.state("big") is QUEUED
    reason = world.why("j")
    assert (reason.cause, reason.opens_at) == (Cause.KEPT, KEEP_S)
    assert reason.summary == "failed (exit code 3); its place on n is kept"
    assert reason.remedy is not None
    assert reason.remedy.change == "`pond attach j` looks inside, `pond stop j` gives the place back"
    start = world.why("big").start
    assert start is not None
    assert start.earliest_at == KEEP_S
    world.end("j", Outcome.USER_ERROR, 0, exit_code=3, detail="exit code 3")
    assert_failed(world)
    assert world.state("big") is RUNNING


def test_retries_come_first_and_only_the_last_failure_keeps_its_place() -> None:
    world = World(machine("n", 1))
    world.lingering.add("j")
    world.submit(single("j", retries=1, keep_s=KEEP_S))
    fails(world)
    (stop,) = world.of_kind(Stop)
    assert (stop.cause, stop.tasks, stop.grace_s) == (Cause.NOT_KEPT, (0,), 0.0)
    world.end("j", Outcome.USER_ERROR, 0, exit_code=3)
    assert world.core.jobs["j"].attempt == 2
    fails(world)
    assert world.core.jobs["j"].kept is not None
    assert (world.core.jobs["j"].failures, len(world.of_kind(Stop))) == (2, 1)


def test_running_out_of_memory_is_tried_again_before_its_place_is_kept() -> None:
    world = World(machine("n", 1))
    world.lingering.add("j")
    world.submit(single("j", keep_s=KEEP_S))
    fails(world, outcome=Outcome.OUT_OF_MEMORY)
    assert world.core.jobs["j"].kept is None
    world.end("j", Outcome.OUT_OF_MEMORY, 0, exit_code=137)
    fails(world, outcome=Outcome.OUT_OF_MEMORY)
    assert world.core.jobs["j"].kept is not None


def test_a_job_that_asks_for_nothing_of_the_kind_gives_its_place_back() -> None:
    world = World(machine("n", 1))
    world.submit(single("j"))
    fails(world)
    assert world.of_kind(Stop)[0].cause is Cause.NOT_KEPT


def test_whoever_stops_it_gives_the_place_back_and_the_job_has_failed() -> None:
    world = kept()
    world.tell(StopRequested(world.now, "j"))
    (stop,) = world.tick()
    assert isinstance(stop, Stop)
    assert (stop.tasks, stop.grace_s) == ((0,), 0.0), "there is nothing to save"
    world.end("j", Outcome.STOPPED, 0)
    assert_failed(world)


@pytest.mark.parametrize("outcome", Outcome)
def test_however_the_place_ends_the_job_ends_as_its_program_did(outcome: Outcome) -> None:
    world = kept()
    world.end("j", outcome, 0, exit_code=9, detail="something else")
    assert_failed(world)


def test_a_lost_node_takes_the_place_with_it() -> None:
    world = kept()
    world.tell(NodeLost(world.now, "n"))
    assert_failed(world)


def test_a_failed_card_a_drained_node_and_closing_hours_end_it() -> None:
    card = kept()
    card.tell(
        DeviceHealthChanged(card.now, "n", card.core._state.cluster.nodes[0].devices[0].uuid, DeviceHealth.FAULTY)
    )
    drained = kept(job=single("j", keep_s=KEEP_S, queue="team", preemptible=False))
    drained.tell(NodeClosed(drained.now, "n", Cordon(drained.now, drain=True)))
    closed = kept(windows=(Window(0, 5),))
    closed.go_to(301.0)
    for world in (card, drained, closed):
        world.settle()
        assert_failed(world)


def test_its_time_limit_counts_no_more_as_its_program_has_ended() -> None:
    world = kept(time_limit_s=100.0)
    world.go_to(500.0)
    assert world.core.jobs["j"].kept is not None


def test_the_mates_of_a_gang_end_and_the_place_of_the_failed_task_stays() -> None:
    world = World(machine("n", 3))
    world.submit(gang("j", 3, asks(1), keep_s=KEEP_S))
    fails(world, task=1)
    (stop,) = world.of_kind(Stop)
    assert (stop.cause, stop.tasks) == (Cause.GANG_BROKEN, (0, 2))
    assert [task.state for task in world.core.jobs["j"].tasks] == [
        TaskState.FAILED, TaskState.RUNNING, TaskState.FAILED
    ]  # fmt: skip
    assert world.state("j") is RUNNING
    world.end("j", Outcome.USER_ERROR, 1, exit_code=3)
    assert world.state("j") is FAILED


def test_a_gang_that_goes_on_without_a_task_does_not_keep_its_place() -> None:
    world = World(machine("n", 3))
    world.lingering.add("j")
    world.submit(elastic("j", (1, 3, 3), asks(1), gang_rule=GangRule.SHRINK, keep_s=KEEP_S))
    fails(world, task=2)
    assert world.of_kind(Stop)[0].cause is Cause.NOT_KEPT
    world.end("j", Outcome.USER_ERROR, 2, exit_code=3)
    assert world.running() == {"j"}
    assert world.core.jobs["j"].kept is None


def test_the_failure_of_a_task_that_has_been_told_to_end_changes_nothing() -> None:
    world = World(machine("n", 1))
    world.lingering.add("j")
    world.submit(single("j", keep_s=KEEP_S))
    world.tell(StopRequested(world.now, "j"))
    world.settle()
    fails(world)
    assert len(world.of_kind(Stop)) == 1
    world.leave("j")
    assert world.state("j") is JobState.CANCELLED


def test_what_is_asked_of_running_work_is_refused_with_the_reason() -> None:
    world = kept()
    for event in (
        SuspendRequested(world.now, "j"),
        MigrateRequested(world.now, "j", restart=True),
        DesiredCountChanged(world.now, "j", "worker", 1),
    ):
        with pytest.raises(ConflictError, match="its place is kept") as refusal:
            world.tell(event)
        assert "pond stop j" in refusal.value.remedy


def test_a_higher_class_takes_a_kept_place_before_it_ends_running_work() -> None:
    world = kept(single("other", priority=Priority.LOW), minimum_run_s=10_000.0)
    world.submit(single("high", priority=Priority.HIGH))
    assert world.running() == {"high", "other"}
    assert_failed(world)
    assert world.core.jobs["j"].preemptions == 0


def test_work_of_the_same_class_waits_for_a_kept_place() -> None:
    world = kept(single("other"))
    world.submit(single("next"))
    world.go_to(KEEP_S - 1)
    assert world.state("next") is QUEUED


def test_a_queue_takes_back_what_a_kept_place_has_borrowed() -> None:
    world = kept(job=single("j", keep_s=KEEP_S, queue="guest"))
    world.submit(single("mine", 2, queue="team"))
    assert world.running() == {"mine"}
    assert_failed(world)


def test_a_kept_place_is_never_swapped_for_others() -> None:
    world = World(machine("n", 1, swap_mib=100_000), pools=[Pool(suspends=True)])
    world.submit(single("j", keep_s=KEEP_S))
    fails(world)
    world.submit(single("high", priority=Priority.HIGH))
    assert world.running() == {"high"}
    assert_failed(world)


def test_a_restored_scheduler_knows_what_is_kept() -> None:
    world = kept()
    again = restarted(world.core)
    assert again.cause("j", world.now) == world.why("j")
    assert again.snapshot() == world.core.snapshot()


def test_an_engine_that_says_it_again_changes_nothing() -> None:
    world = kept()
    before = world.core.snapshot()
    world.tell(Kept(world.now, "j", 1, 0, Outcome.USER_ERROR, 9_999.0, 1, "other"))
    assert world.core.snapshot() == before
