"""What a machine's tasks hear when it goes down."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from millpond.node.host.controllers import SERVER_GROUP, TASKS_UNIT
from millpond.node.task import shutdown_hook
from millpond.node.task.forkserver import SUPERVISOR

Unit = tuple[Path, Path, "subprocess.Popen[bytes]", "subprocess.Popen[bytes]"]


@pytest.fixture
def unit(tmp_path: Path) -> Iterator[Unit]:
    """Control groups in which a supervisor lives beside the process that keeps the unit's group."""
    group = tmp_path / "cgroup" / "slice" / TASKS_UNIT
    for name in (SERVER_GROUP, ".control"):
        (group / name).mkdir(parents=True)
    membership = tmp_path / "membership"
    membership.write_text(f"0::/slice/{TASKS_UNIT}/.control\n")
    sleep = shutil.which("sleep")
    assert sleep is not None
    program = shutil.copy(sleep, tmp_path / SUPERVISOR)
    with subprocess.Popen([program, "60"]) as supervisor, subprocess.Popen([sleep, "60"]) as keeper:
        # The kernel names a process a moment after it has closed what tells us that it was started.
        while Path(f"/proc/{supervisor.pid}/comm").read_text().strip() != SUPERVISOR:
            os.sched_yield()
        (group / SERVER_GROUP / "cgroup.procs").write_text(f"{supervisor.pid}\n{keeper.pid}\n")
        yield tmp_path / "cgroup", membership, supervisor, keeper
        supervisor.kill()
        keeper.kill()


def test_supervisors_are_told_and_waited_for_and_nobody_else(unit: Unit) -> None:
    cgroups, membership, supervisor, keeper = unit
    assert shutdown_hook.main({"MAINPID": str(keeper.pid)}, cgroups, membership) == 0
    assert supervisor.wait(0) == -signal.SIGTERM
    assert keeper.poll() is None


def test_no_task_ends_when_merely_the_process_that_keeps_the_group_was_killed(unit: Unit) -> None:
    cgroups, membership, supervisor, _ = unit
    assert shutdown_hook.main({}, cgroups, membership) == 0
    assert supervisor.poll() is None
