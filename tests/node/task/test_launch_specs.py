"""What a task executes, checked when it is handed in."""

from __future__ import annotations

from pathlib import Path

import pytest

from millpond.model.decisions import Placement
from millpond.model.errors import InvalidInputError
from millpond.model.sharing import SliceHold
from millpond.node.sandbox.sandbox import Sandbox
from millpond.node.sharing.backend import TaskEnv
from millpond.node.task.launch import LaunchSpec, base_environment
from millpond.node.task.records import TaskId
from millpond.node.task.start_plan import TaskStartPlan
from millpond.node.task.start_planner import TaskStart, plan_start


def test_a_line_goes_to_the_shell_and_words_are_taken_as_they_are() -> None:
    assert LaunchSpec("a | b", Path("/")).argv_of("worker") == ["/bin/sh", "-c", "a | b"]
    assert LaunchSpec(("a", "b c"), Path("/")).argv_of("worker") == ["a", "b c"]


def test_a_role_may_have_a_command_of_its_own() -> None:
    launch = LaunchSpec(("work",), Path("/"), role_commands={"ps": ("serve",)})
    assert (launch.argv_of("ps"), launch.argv_of("worker")) == (["serve"], ["work"])


@pytest.mark.parametrize(
    ("launch", "cause"),
    [
        (lambda: LaunchSpec("", Path("/")), "an empty command"),
        (lambda: LaunchSpec((), Path("/")), "an empty command"),
        (lambda: LaunchSpec("a", Path("here")), "relative"),
        (lambda: LaunchSpec("a", Path("/"), checkpoint_signal="SIGFOO"), "'SIGFOO' is no signal"),
        (lambda: LaunchSpec("a", Path("/"), checkpoint_signal="SIGKILL"), "'SIGKILL' is no signal"),
    ],
)
def test_what_cannot_be_launched_is_refused(launch: object, cause: str) -> None:
    assert callable(launch)
    with pytest.raises(InvalidInputError, match=cause) as caught:
        launch()
    assert caught.value.remedy


def test_tasks_inherit_paths_and_language_but_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_TIME", "C")
    monkeypatch.setenv("DATABASE_PASSWORD", "hunter2")
    environment = base_environment()
    assert environment["LC_TIME"] == "C"
    assert "PATH" in environment
    assert "DATABASE_PASSWORD" not in environment


@pytest.mark.parametrize(("held_by", "own"), [(SliceHold.GATE, True), (SliceHold.MPS, False)])
def test_a_task_under_mps_meets_its_daemon_in_the_machines_shared_memory(
    tmp_path: Path, held_by: SliceHold, own: bool
) -> None:
    task = TaskId("j", 1, 0)
    start = TaskStart(task, 1, Placement(0, "worker", "n"), {"PATH": "/usr/bin:/bin"}, TaskEnv(held_by))
    launch = LaunchSpec("work", Path("/usr"), own_shared_memory=True)
    plan = plan_start(tmp_path, start, launch, Sandbox("bwrap", ()))
    assert plan.wrapped is not None
    assert ("/dev/shm" in plan.wrapped) == own
    assert TaskStartPlan.decode(plan.encode()) == plan
