"""Failures: what is tried again, what a gang does when it loses a task, time limits, lost nodes, late answers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from worlds import World, asks, elastic, gang, machine, single

from millpond.model.decisions import Start, Stop
from millpond.model.events import (
    Confirmed,
    DeviceHealthChanged,
    Ended,
    JobSubmitted,
    NodeJoined,
    NodeLost,
    Refused,
    StopRequested,
)
from millpond.model.hardware.devices import DeviceHealth
from millpond.model.reasons import Cause
from millpond.model.states import JobState, Outcome, TaskState
from millpond.model.workloads import GangRule, Priority

FAILED, QUEUED, RUNNING = JobState.FAILED, JobState.QUEUED, JobState.RUNNING

RETRIES = [
    ("a program that fails is not run again", 0, [Outcome.USER_ERROR], FAILED),
    ("unless retries are left", 2, [Outcome.USER_ERROR] * 2, RUNNING),
    ("and then it has failed", 2, [Outcome.USER_ERROR] * 3, FAILED),
    ("running out of memory is tried once more", 0, [Outcome.OUT_OF_MEMORY], RUNNING),
    ("and then it has failed", 5, [Outcome.OUT_OF_MEMORY] * 2, FAILED),
    ("a lost node is not the job's fault", 0, [Outcome.NODE_LOST] * 5, RUNNING),
    ("nor is a lost device", 0, [Outcome.DEVICE_LOST] * 5, RUNNING),
    ("what is lost uses up no retries", 1, [Outcome.NODE_LOST, Outcome.USER_ERROR, Outcome.DEVICE_LOST], RUNNING),
    ("a start that fails counts like a failure", 1, [Outcome.START_FAILED, Outcome.USER_ERROR], FAILED),
    ("a time limit is never tried again", 5, [Outcome.TIME_LIMIT], FAILED),
]


@pytest.mark.parametrize(("behaviour", "retries", "outcomes", "state"), RETRIES)
def test_retries_go_by_the_class_of_the_failure(
    behaviour: str, retries: int, outcomes: list[Outcome], state: JobState
) -> None:
    world = World(machine("n", 1))
    world.submit(single("j", retries=retries))
    for outcome in outcomes:
        world.end("j", outcome, 0, exit_code=1)
    assert world.state("j") is state
    assert world.core.jobs["j"].attempt == len(outcomes) + (state is RUNNING)


def broken_gang(rule: GangRule, outcome: Outcome, *, minimum: int = 3, retries: int = 0) -> World:
    """A running gang of three loses its task 1."""
    world = World(machine("n", 4))
    job = gang("g", 3, asks(1), gang_rule=rule, retries=retries)
    if minimum < 3:
        job = elastic("g", (minimum, 3, 3), asks(1), gang_rule=rule, retries=retries)
    world.submit(job)
    world.end("g", outcome, 1)
    return world


def test_a_gang_that_needs_all_its_tasks_runs_again_as_a_whole() -> None:
    world = broken_gang(GangRule.ALL, Outcome.NODE_LOST)
    (stop,) = world.of_kind(Stop)
    assert (stop.cause, stop.tasks) == (Cause.GANG_BROKEN, ())
    again = world.of_kind(Start)[-1]
    assert (again.attempt, again.joins, len(again.placements)) == (2, False, 3)
    assert world.state("g") is RUNNING


def test_a_gang_that_needs_all_its_tasks_fails_as_a_whole_when_one_fails_for_good() -> None:
    world = broken_gang(GangRule.ALL, Outcome.USER_ERROR)
    assert world.state("g") is FAILED
    assert all(task.state is TaskState.FAILED for task in world.core.jobs["g"].tasks)


def test_a_gang_that_restarts_tasks_starts_the_lost_one_beside_the_others() -> None:
    world = broken_gang(GangRule.RESTART_TASK, Outcome.NODE_LOST)
    assert not world.of_kind(Stop)
    again = world.of_kind(Start)[-1]
    assert (again.attempt, again.joins, [p.task for p in again.placements]) == (1, True, [1])


def test_a_gang_that_restarts_tasks_fails_when_a_task_has_no_retry_left() -> None:
    world = broken_gang(GangRule.RESTART_TASK, Outcome.USER_ERROR)
    assert world.state("g") is FAILED


def spread_gang(rule: GangRule) -> World:
    """A running gang of one to three tasks on three machines of one card each."""
    world = World(*(machine(f"n{number}", 1) for number in range(3)))
    world.submit(elastic("g", (1, 3, 3), asks(1), gang_rule=rule))
    return world


def test_a_gang_that_shrinks_goes_on_with_the_rest() -> None:
    world = spread_gang(GangRule.SHRINK)
    world.tell(NodeLost(world.now, world.nodes_of("g")[1]))
    world.settle()
    assert not world.of_kind(Stop)
    assert (world.state("g"), len(world.nodes_of("g"))) == (RUNNING, 2)
    world.end("g", Outcome.SUCCESS)
    assert world.state("g") is JobState.SUCCEEDED


def test_a_gang_that_shrank_takes_its_lost_task_in_again_when_there_is_room() -> None:
    world = spread_gang(GangRule.SHRINK)
    lost = world.nodes_of("g")[1]
    world.tell(NodeLost(world.now, lost))
    world.settle()
    world.tell(NodeJoined(world.now, machine(lost, 1)))
    world.settle()
    again = world.of_kind(Start)[-1]
    assert (again.attempt, again.joins, [placed.task for placed in again.placements]) == (1, True, [1])


def test_a_gang_that_shrank_has_failed_if_a_task_failed_for_good_although_the_others_went_on() -> None:
    world = broken_gang(GangRule.SHRINK, Outcome.USER_ERROR, minimum=2)
    assert (world.state("g"), len(world.nodes_of("g"))) == (RUNNING, 2)
    world.end("g", Outcome.SUCCESS)
    assert world.state("g") is FAILED


@pytest.mark.parametrize("outcome", [Outcome.USER_ERROR, Outcome.NODE_LOST])
def test_tasks_that_end_apart_are_neither_missed_nor_started_again(outcome: Outcome) -> None:
    world = broken_gang(GangRule.APART, outcome, retries=3)
    assert (world.state("g"), len(world.nodes_of("g"))) == (RUNNING, 2)
    assert not world.of_kind(Stop)
    world.end("g", Outcome.SUCCESS)
    assert world.state("g") is FAILED


def test_tasks_that_end_apart_are_tried_again_where_they_could_not_even_be_started() -> None:
    world = World(machine("n", 2))
    world.refusing = {"g": True}
    world.submit(gang("g", 2, asks(1), gang_rule=GangRule.APART))
    assert world.state("g") is QUEUED
    assert world.why("g").cause is Cause.RETRY_DELAYED
    world.refusing = {}
    world.go_to(world.now + 600)
    assert world.state("g") is RUNNING


def test_tasks_that_end_apart_start_together_and_run_again_after_a_preemption() -> None:
    world = World(machine("n", 2))
    world.submit(gang("g", 2, asks(1), priority=Priority.LOW, gang_rule=GangRule.APART))
    world.submit(single("high", 1, priority=Priority.HIGH), lasting=10)
    assert (world.state("g"), world.nodes_of("g")) == (QUEUED, [])
    world.go_to(20)
    assert (world.core.jobs["g"].attempt, len(world.nodes_of("g"))) == (2, 2)


def test_a_task_that_had_failed_for_good_runs_again_when_its_gang_runs_anew() -> None:
    world = broken_gang(GangRule.SHRINK, Outcome.USER_ERROR, minimum=2)
    world.end("g", Outcome.NODE_LOST)
    assert (world.core.jobs["g"].attempt, len(world.nodes_of("g"))) == (2, 3)


def test_an_elastic_gang_that_loses_its_last_task_has_succeeded_if_enough_of_it_had() -> None:
    world = spread_gang(GangRule.SHRINK)
    for task, outcome in enumerate((Outcome.SUCCESS, Outcome.SUCCESS, Outcome.NODE_LOST)):
        world.tell(Ended(world.now, "g", 1, outcome, task))
    assert world.state("g") is JobState.SUCCEEDED


def test_an_elastic_gang_that_is_preempted_is_not_finished_because_one_task_was_done_in_time() -> None:
    world = World(machine("n", 2))
    world.submit(elastic("g", (1, 2, 2), asks(1), priority=Priority.LOW))
    world.lingering = {"g"}
    world.submit(single("high", 2, priority=Priority.HIGH), lasting=10)
    world.tell(Ended(world.now, "g", 1, Outcome.STOPPED, 0))
    world.tell(Ended(world.now, "g", 1, Outcome.SUCCESS, 1))
    assert world.state("g") is QUEUED
    world.go_to(20)
    assert (world.core.jobs["g"].attempt, len(world.nodes_of("g"))) == (2, 2)


@pytest.mark.parametrize(("rule", "attempt"), [(GangRule.ALL, 2), (GangRule.RESTART_TASK, 1), (GangRule.SHRINK, 1)])
def test_a_task_that_was_stopped_although_nobody_asked_for_it_is_lost_to_its_gang(rule: GangRule, attempt: int) -> None:
    world = spread_gang(rule)
    world.tell(Ended(world.now, "g", 1, Outcome.STOPPED, 1))
    world.settle()
    record = world.core.jobs["g"]
    assert (record.attempt, len(world.nodes_of("g")), record.failures) == (attempt, 3, 0)


def test_a_job_that_was_stopped_although_nobody_asked_for_it_runs_again() -> None:
    world = World(machine("n", 1))
    world.submit(single("j"))
    world.tell(Ended(world.now, "j", 1, Outcome.STOPPED, 0))
    world.settle()
    assert (world.state("j"), world.core.jobs["j"].attempt) == (RUNNING, 2)


@pytest.mark.parametrize(
    ("rule", "stopped", "attempt"),
    [(GangRule.ALL, (), 2), (GangRule.RESTART_TASK, (1,), 1), (GangRule.SHRINK, (1,), 1)],
)
def test_a_gang_whose_device_fails_goes_by_its_rule(rule: GangRule, stopped: tuple[int, ...], attempt: int) -> None:
    world = spread_gang(rule)
    node = world.nodes_of("g")[1]
    world.tell(DeviceHealthChanged(world.now, node, f"{node}-0", DeviceHealth.FAULTY, "it fell off the bus"))
    world.settle()
    (stop,) = world.of_kind(Stop)
    assert (stop.cause, stop.tasks) == (Cause.DEVICE_FAILED, stopped)
    record = world.core.jobs["g"]
    assert (record.attempt, len(world.nodes_of("g")), record.failures) == (attempt, 2, 0)
    assert record.tasks[1].detail == "it fell off the bus"
    world.tell(DeviceHealthChanged(world.now, node, f"{node}-0", DeviceHealth.OK))
    world.settle()
    assert len(world.nodes_of("g")) == 3


def test_work_leaves_a_device_that_its_node_reports_as_faulty_when_it_registers_again() -> None:
    world = World(machine("n", 1), machine("m", 1))
    world.submit(single("j"))
    (name,) = world.nodes_of("j")
    node = machine(name, 1)
    broken = replace(node.devices[0], health=DeviceHealth.FAULTY)
    world.tell(NodeJoined(world.now, replace(node, devices=(broken,))))
    world.settle()
    assert world.state("j") is RUNNING
    assert world.nodes_of("j") != [name]


def test_a_gang_that_would_shrink_below_its_minimum_runs_again_as_a_whole() -> None:
    world = broken_gang(GangRule.SHRINK, Outcome.NODE_LOST, minimum=3)
    assert [stop.cause for stop in world.of_kind(Stop)] == [Cause.GANG_BROKEN]
    assert world.core.jobs["g"].attempt == 2


def test_a_job_has_succeeded_when_all_its_tasks_have() -> None:
    world = World(machine("n", 4))
    world.submit(gang("g", 2, asks(1)))
    world.end("g", Outcome.SUCCESS, 0, exit_code=0)
    assert world.state("g") is RUNNING
    world.end("g", Outcome.SUCCESS, 1, exit_code=0)
    assert world.state("g") is JobState.SUCCEEDED


def test_tasks_that_had_succeeded_run_again_with_a_gang_that_is_broken() -> None:
    world = World(machine("n", 4))
    world.submit(gang("g", 2, asks(1)))
    world.end("g", Outcome.SUCCESS, 0)
    world.end("g", Outcome.NODE_LOST, 1)
    assert len(world.of_kind(Start)[-1].placements) == 2


# ---- time limits ------------------------------------------------------------------------------------------------


def test_a_job_is_ended_at_its_time_limit_and_has_failed() -> None:
    world = World(machine("n", 1))
    world.submit(single("j", time_limit_s=60, retries=3))
    assert world.core.next_wakeup(world.now) == 60
    world.go_to(59)
    assert world.state("j") is RUNNING
    world.go_to(60)
    (stop,) = world.of_kind(Stop)
    assert stop.cause is Cause.TIME_LIMIT
    assert world.state("j") is FAILED


# ---- nodes ------------------------------------------------------------------------------------------------------


def test_work_of_a_lost_node_runs_again_elsewhere_and_no_retry_is_used_up() -> None:
    world = World(machine("n0", 1))
    world.submit(single("j"))
    world.tell(NodeJoined(0.0, machine("n1", 1)))
    world.tell(NodeLost(0.0, "n0"))
    world.settle()
    assert world.nodes_of("j") == ["n1"]
    assert (world.core.jobs["j"].attempt, world.core.jobs["j"].failures) == (2, 0)


def test_work_of_a_lost_node_waits_until_the_node_is_back() -> None:
    world = World(machine("n0", 1), machine("n1", 0))
    world.submit(single("j"))
    world.tell(NodeLost(0.0, "n0"))
    world.settle()
    assert world.state("j") is QUEUED
    world.tell(NodeJoined(5.0, machine("n0", 1)))
    world.settle()
    assert world.nodes_of("j") == ["n0"]


def test_a_node_that_reports_again_keeps_what_runs_on_it() -> None:
    world = World(machine("n0", 2))
    world.submit(single("j", 2))
    world.tell(NodeJoined(5.0, machine("n0", 2, cpu_milli=32_000)))
    world.settle()
    assert world.running() == {"j"}
    assert len(world.of_kind(Start)) == 1


# ---- answers of the engine --------------------------------------------------------------------------------------


def test_a_late_answer_about_an_older_run_is_ignored() -> None:
    world = World(machine("n", 1))
    world.submit(single("j", retries=1))
    world.end("j", Outcome.USER_ERROR, 0)
    assert world.core.jobs["j"].attempt == 2
    for outcome in (Outcome.SUCCESS, Outcome.USER_ERROR, Outcome.NODE_LOST):
        world.tell(Ended(1.0, "j", 1, outcome, 0))
        world.tell(Ended(1.0, "j", 1, outcome))
    first = world.of_kind(Start)[0]
    world.tell(Confirmed(1.0, first.id))
    world.tell(Refused(1.0, first.id, "too late"))
    world.settle()
    assert (world.state("j"), world.core.jobs["j"].attempt) == (RUNNING, 2)


def test_a_second_answer_to_the_same_decision_is_ignored() -> None:
    world = World(machine("n", 1))
    world.submit(single("j"))
    (start,) = world.of_kind(Start)
    world.tell(Refused(1.0, start.id, "after it was confirmed"))
    world.tell(Confirmed(1.0, start.id))
    world.settle()
    assert world.state("j") is RUNNING


def test_an_end_is_taken_for_a_start_that_was_never_confirmed() -> None:
    world = World(machine("n", 1))
    world.core.handle(JobSubmitted(0.0, single("j")))
    (start,) = world.core.decide(0.0)
    world.tell(Ended(1.0, "j", start.attempt, Outcome.SUCCESS, 0, 0))
    assert world.state("j") is JobState.SUCCEEDED


def test_a_refused_start_fails_a_job_without_retries_and_says_why() -> None:
    world = World(machine("n", 1))
    world.refusing["j"] = False
    world.submit(single("j"))
    assert world.state("j") is FAILED
    (task,) = world.core.jobs["j"].tasks
    assert (task.outcome, task.detail) == (Outcome.START_FAILED, "it says no")


def test_a_start_refused_for_its_node_is_tried_again_after_a_pause_and_not_counted() -> None:
    world = World(machine("n", 1))
    world.refusing["j"] = True
    world.submit(single("j"))
    assert world.state("j") is QUEUED
    wake = world.core.next_wakeup(world.now)
    assert wake is not None
    assert wake > world.now
    assert world.why("j").summary == "its last start was refused (it says no); it lines up again after a pause"
    world.go_to(wake)
    assert world.state("j") is RUNNING
    assert world.core.jobs["j"].failures == 0


def test_others_use_the_room_of_a_start_that_was_refused() -> None:
    world = World(machine("n", 1))
    world.refusing["j"] = False
    world.submit(single("j"), single("k"))
    assert world.running() == {"k"}


# ---- stopping ---------------------------------------------------------------------------------------------------


def test_a_waiting_job_that_is_stopped_is_cancelled_at_once() -> None:
    world = World(machine("n", 1))
    world.submit(single("a"), single("b"))
    world.tell(StopRequested(1.0, "b", "somebody"))
    world.settle()
    assert world.state("b") is JobState.CANCELLED
    world.end("a")
    assert not world.of_kind(Start, "b")


def test_a_running_job_that_is_stopped_is_cancelled_when_it_has_ended() -> None:
    world = World(machine("n", 1))
    world.lingering.add("a")
    world.submit(single("a", retries=9))
    world.tell(StopRequested(1.0, "a"))
    world.settle()
    assert world.state("a") is JobState.STOPPING
    world.leave("a")
    assert world.state("a") is JobState.CANCELLED


def test_stopping_a_job_that_has_ended_changes_nothing() -> None:
    world = World(machine("n", 1))
    world.submit(single("a"))
    world.end("a")
    world.tell(StopRequested(1.0, "a"))
    assert world.settle() == []
    assert world.state("a") is JobState.SUCCEEDED
