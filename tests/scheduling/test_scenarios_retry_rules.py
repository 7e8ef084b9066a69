"""A job's own rules: which failures are tried again, after which delay, and which roles keep it running."""

from __future__ import annotations

import pytest
from worlds import World, asks, machine, restarted, single

from millpond.model.decisions import Start, Stop
from millpond.model.errors import InvalidInputError
from millpond.model.events import Ended, NodeJoined, NodeLost, StopRequested
from millpond.model.reasons import Cause
from millpond.model.states import JobState, Outcome, TaskState
from millpond.model.workloads import FailureRule, GangRule, Job, RetryDelay, Role

FAILED, QUEUED, RUNNING, SUCCEEDED = JobState.FAILED, JobState.QUEUED, JobState.RUNNING, JobState.SUCCEEDED
USER, MEMORY, NODE = Outcome.USER_ERROR, Outcome.OUT_OF_MEMORY, Outcome.NODE_LOST

RULES = [
    ("an exit code that is named is tried again", FailureRule(("75",)), 2, [(USER, 75)], RUNNING),
    ("as often as there are retries", FailureRule(("75",)), 2, [(USER, 75)] * 3, FAILED),
    ("others are not, although retries are left", FailureRule(("75",)), 2, [(USER, 1)], FAILED),
    ("a class that is named is tried again", FailureRule(("out-of-memory",)), 3, [(MEMORY, 137)] * 3, RUNNING),
    ("and one that is not named is not", FailureRule(("75",)), 3, [(MEMORY, 137)], FAILED),
    ("what is lost always is", FailureRule(("75",)), 0, [(NODE, None)] * 3, RUNNING),
    ("unless the rule says never", FailureRule((), ("node-lost",)), 9, [(NODE, None)], FAILED),
    ("an exit code that is never tried again", FailureRule((), ("2",)), 9, [(USER, 2)], FAILED),
    ("leaves the others as they are", FailureRule((), ("2",)), 1, [(USER, 1)], RUNNING),
    ("never goes before again", FailureRule(("user-error",), ("2",)), 9, [(USER, 1), (USER, 2)], FAILED),
]


@pytest.mark.parametrize(("behaviour", "rule", "retries", "ends", "state"), RULES)
def test_a_rule_says_which_failures_are_tried_again(
    behaviour: str, rule: FailureRule, retries: int, ends: list[tuple[Outcome, int | None]], state: JobState
) -> None:
    world = World(machine("n", 1))
    world.submit(single("j", retries=retries, failures=rule))
    for outcome, code in ends:
        world.end("j", outcome, 0, exit_code=code)
    assert world.state("j") is state


def test_a_role_has_rules_of_its_own() -> None:
    never = FailureRule((), ("user-error",))
    for failing, state in ((0, RUNNING), (1, FAILED)):
        world = World(machine("n", 4))
        roles = (Role.rigid(asks(1), 1, "worker"), Role(asks(1), name="judge", failures=never))
        world.submit(Job("j", roles, retries=3))
        world.end("j", USER, failing, exit_code=1)
        assert world.state("j") is state


def test_the_delay_before_a_retry_grows_and_has_an_end() -> None:
    delay = RetryDelay(10.0, 3.0, 60.0)
    assert [delay.after(failures) for failures in (1, 2, 3, 4, 10_000)] == [10.0, 30.0, 60.0, 60.0, 60.0]
    assert RetryDelay().after(3) == 0.0


def test_a_job_that_failed_waits_out_its_delay_and_says_so() -> None:
    world = World(machine("n", 1))
    world.submit(single("j", retries=5, retry_delay=RetryDelay(30.0)))
    world.end("j", USER, 0, exit_code=1)
    failed_at = world.now
    assert world.state("j") is QUEUED
    reason = world.why("j")
    assert reason.cause is Cause.RETRY_DELAYED
    assert reason.start is not None
    assert reason.start.earliest_at == failed_at + 30.0
    assert world.core.next_wakeup(world.now) == failed_at + 30.0
    world.submit(single("other"))
    assert world.state("other") is RUNNING, "it is in nobody's way meanwhile"
    world.end("other")
    world.go_to(world.now + 29.0)
    assert world.state("j") is QUEUED
    world.go_to(world.now + 1.0)
    assert world.state("j") is RUNNING
    world.end("j", NODE, 0)
    assert world.state("j") is RUNNING, "what is lost waits for nothing"


def test_after_runs_that_are_lost_as_soon_as_they_begin_the_next_ones_begin_later_and_later() -> None:
    world = World(machine("n", 1))
    world.submit(single("j"))
    for attempt in range(1, 1_200):
        began_at = world.now
        world.tell(Ended(began_at, "j", attempt, NODE, detail="its supervisor is gone"))
        world.settle()
        assert world.state("j") is QUEUED
        assert "its supervisor is gone" in world.why("j").summary
        next_at = world.core.next_wakeup(world.now)
        assert next_at == began_at + (2.0 ** (attempt - 1) if attempt < 10 else 300.0)
        world.go_to(next_at)
        assert world.state("j") is RUNNING
    world.tell(NodeLost(world.now, "n"))
    world.tell(NodeJoined(world.now, machine("n", 1)))
    world.settle()
    assert world.state("j") is RUNNING, "with its node: that is no fault of the run"


def test_a_delay_outlives_a_snapshot() -> None:
    world = World(machine("n", 1))
    world.submit(single("j", retries=5, retry_delay=RetryDelay(30.0)))
    world.end("j", USER, 0, exit_code=1)
    again = restarted(world.core)
    assert again.next_wakeup(world.now) == world.core.next_wakeup(world.now)
    assert not [decision for decision in again.decide(world.now + 29.0) if isinstance(decision, Start)]
    assert [decision for decision in again.decide(world.now + 30.0) if isinstance(decision, Start)]


def test_a_job_can_be_stopped_while_it_waits_for_its_retry() -> None:
    world = World(machine("n", 1))
    world.submit(single("j", retries=5, retry_delay=RetryDelay(30.0)))
    world.end("j", USER, 0, exit_code=1)
    world.tell(StopRequested(world.now, "j"))
    world.settle()
    world.go_to(world.now + 60.0)
    assert world.state("j") is JobState.CANCELLED


def test_a_task_that_is_started_again_beside_the_others_waits_too() -> None:
    world = World(machine("n", 3))
    job = Job("g", (Role.rigid(asks(1), 3),), gang_rule=GangRule.RESTART_TASK, retries=1, retry_delay=RetryDelay(20.0))
    world.submit(job)
    world.end("g", USER, 1, exit_code=1)
    assert len(world.nodes_of("g")) == 2
    world.go_to(world.now + 19.0)
    assert len(world.of_kind(Start)) == 1
    world.go_to(world.now + 1.0)
    assert world.of_kind(Start)[-1].joins


def parameter_servers(rule: GangRule = GangRule.ALL, workers: Role | None = None, **fields: object) -> Job:
    servers = Role(asks(1), 2, 2, 2, "ps", daemon=True)
    return Job("j", (workers or Role.rigid(asks(1), 2, "worker"), servers), gang_rule=rule, **fields)  # type: ignore[arg-type]


def test_a_job_is_done_when_its_workers_are_and_its_parameter_servers_are_ended() -> None:
    world = World(machine("n", 4))
    world.submit(parameter_servers())
    world.end("j", Outcome.SUCCESS, 0)
    assert not world.of_kind(Stop)
    world.end("j", Outcome.SUCCESS, 1)
    (stop,) = world.of_kind(Stop)
    assert stop.cause is Cause.WORK_DONE
    assert world.state("j") is SUCCEEDED
    tasks = world.core.jobs["j"].tasks
    assert all(task.state is TaskState.SUCCEEDED for task in tasks)
    assert [task.detail for task in tasks] == ["", "", *["stopped when the work was done"] * 2]


def test_a_parameter_server_that_ends_by_itself_ends_nothing() -> None:
    world = World(machine("n", 4))
    world.submit(parameter_servers())
    world.end("j", Outcome.SUCCESS, 2)
    assert world.state("j") is RUNNING
    world.end("j", USER, 3, exit_code=1)
    assert world.state("j") is FAILED


def test_a_parameter_server_that_waits_to_join_again_is_not_waited_for() -> None:
    world = World(machine("n", 3), machine("m", 1))
    world.submit(parameter_servers(GangRule.RESTART_TASK))
    (lost,) = (task.number for task in world.core.jobs["j"].tasks if task.placement and task.placement.node == "m")
    world.tell(NodeLost(world.now, "m"))
    world.settle()
    for task in world.core.jobs["j"].tasks:
        if task.role == "worker" and task.state is TaskState.RUNNING:
            world.end("j", Outcome.SUCCESS, task.number)
    workers_left = any(task.role == "worker" and not task.state.ended for task in world.core.jobs["j"].tasks)
    assert world.state("j") is (RUNNING if workers_left else SUCCEEDED)
    assert workers_left == (lost < 2)


def test_workers_that_never_joined_are_not_waited_for_beside_parameter_servers() -> None:
    world = World(machine("n", 3))
    world.submit(parameter_servers(GangRule.RESTART_TASK, Role(asks(1), 3, 1, 3, "worker")))
    world.end("j", Outcome.SUCCESS, 0)
    assert world.state("j") is SUCCEEDED


def test_a_job_whose_workers_failed_for_good_fails_and_its_parameter_servers_end() -> None:
    world = World(machine("n", 4))
    world.submit(parameter_servers(GangRule.SHRINK, Role(asks(1), 2, 1, 2, "worker")))
    world.end("j", USER, 0, exit_code=1)
    world.end("j", Outcome.SUCCESS, 1)
    assert world.state("j") is FAILED
    assert not world.nodes_of("j")


def test_a_job_of_daemons_alone_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="daemons"):
        Job("j", (Role(asks(1), daemon=True),))
