"""No job sees what is hidden from it, whatever it names: jobs put together by chance, as root and not as root."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hostile_walk import CANARY, World, as_account, walk

from millpond.model.decisions import Placement
from millpond.node.sandbox.detection import SandboxMode, find_sandbox, trouble_with_identities
from millpond.node.sandbox.sandbox import Sandbox
from millpond.node.task.launch import LaunchSpec
from millpond.node.task.limits import TaskLimits
from millpond.node.task.records import TaskFiles, TaskId
from millpond.node.task.start_plan import ProcessLimits
from millpond.node.task.start_planner import TaskStart, plan_start
from millpond.node.task.workspace import DataMount, Workspace
from seeds import few_then_many

pytestmark = pytest.mark.end_to_end

ANOTHER = 65_533
"""An account that is not root's, and has nothing."""


@pytest.fixture(params=["/tmp", "/var/lib"], ids=["in-tmp", "elsewhere"])
def folder(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder that every account can enter, in a directory that tasks have for themselves or beside it."""
    the_sandbox()
    if not os.access(request.param, os.W_OK):
        pytest.skip(f"this account cannot write to {request.param}")
    made = Path(tempfile.mkdtemp(prefix="hostile-", dir=request.param))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def the_sandbox() -> Sandbox:
    """That of this machine; without one there is nothing to try."""
    sandbox, trouble = find_sandbox(SandboxMode.PREFERRED, ())
    if sandbox is None:
        pytest.skip(f"no sandbox here: {trouble}")
    return sandbox


def walked(folder: Path, mode: str, count: int, seed: int) -> dict[str, Any]:
    """A walk; ``mode`` says whose tasks they are on what kind of server."""
    sandbox = the_sandbox()
    if os.geteuid() != 0 and mode == "identity":
        pytest.skip("only root can start tasks as others")
    if os.geteuid() == 0 and mode in ("not root", "shared account"):
        return dict(as_account(ANOTHER, folder, lambda: walk(folder, count, seed, mode)))
    if mode != "identity":
        return walk(folder, count, seed, mode)
    if trouble := trouble_with_identities(sandbox):
        pytest.skip(f"tasks cannot run as others here: {trouble}")
    return walk(folder, count, seed, mode)


@pytest.mark.parametrize("mode", ["owner", "identity", "not root", "shared account"])
@pytest.mark.parametrize(("count", "seed"), few_then_many([(20, 1)], [(80, 2)], [(250, 2)]))
def test_no_job_reads_or_changes_what_is_hidden_whatever_it_names(
    folder: Path, mode: str, count: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(folder / "srv"))
    found = walked(folder, mode, count, seed)
    assert found["leaks"] == []
    assert found["walked"] > count // 3


def test_on_a_server_that_is_not_root_a_task_that_forks_without_end_meets_a_bound_of_its_own(folder: Path) -> None:
    def bomb() -> str:
        world, task = World(folder, "owner"), TaskId("mine", 1, 0)
        files = TaskFiles.of(world.state, task)
        report = files.record.parent / "files" / "report"
        report.parent.mkdir(parents=True)
        script = f"exec > {report} 2>&1; for i in $(seq 60); do sleep 60 & done; echo reached the end"
        env, limits = {"PATH": "/usr/bin:/bin"}, TaskLimits(process=ProcessLimits(processes=20))
        start = TaskStart(task, 1, Placement(0, "worker", "n"), env, limits=limits)
        launch = LaunchSpec(script, world.project, workspace=Workspace("", ""))
        return world.run(plan_start(world.state, start, launch, world.sandbox), files)

    found = as_account(ANOTHER, folder, bomb) if os.geteuid() == 0 else bomb()
    assert "fork" in found.lower()
    assert "reached the end" not in found


@pytest.mark.parametrize("what", ["workdir", "data", "output", "VIRTUAL_ENV"])
def test_a_link_that_is_put_in_place_of_a_folder_after_its_check_shows_nothing(folder: Path, what: str) -> None:
    world, task = World(folder, "owner"), TaskId("mine", 1, 0)
    assert world.sandbox is not None
    if not world.sandbox.takes_open:
        pytest.skip("this version of bubblewrap mounts paths only")
    files, named = TaskFiles.of(world.state, task), world.project / "named"
    (files.record.parent / "files").mkdir(parents=True)
    named.mkdir()
    data = (DataMount("d", str(named)),) if what == "data" else ()
    workspace = Workspace("", "", data=data, output=str(named) if what == "output" else "")
    env = {"PATH": "/usr/bin:/bin"} | ({what: str(named)} if what == "VIRTUAL_ENV" else {})
    report = files.record.parent / "files" / "report"
    launch = LaunchSpec(
        f"cat {named}/token > {report}", named if what == "workdir" else Path("/usr"), workspace=workspace
    )
    plan = plan_start(world.state, TaskStart(task, 1, Placement(0, "worker", "n"), env), launch, world.sandbox)
    named.rmdir()
    named.symlink_to(world.state)
    assert CANARY not in world.run(plan, files)
