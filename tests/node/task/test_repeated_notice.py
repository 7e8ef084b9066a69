"""A notice to a task whose sandbox is still being made, while the machine's clock is set."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from millpond.node.task import supervisor
from millpond.node.task.start_plan import ProcessLimits, TaskStartPlan
from millpond.node.task.task_start import TaskStartup


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> supervisor._Supervisor:
    monkeypatch.setattr(TaskStartup, "start", lambda _: 1)
    monkeypatch.setattr(supervisor.procfs, "descendants", lambda _: [])
    monkeypatch.setattr(supervisor.procfs, "send", lambda *_: None)
    plan = TaskStartPlan(
        record={"decision": 1, "notice_signal": "SIGTERM"},
        command=["true"],
        workdir="/",
        env={},
        wrapped=["bwrap", "true"],
        kill_counter="/proc/vmstat",
        shutdown_grace_s=30.0,
        limits=ProcessLimits(),
        input=None,
        workspace=None,
        identity=None,
        owned=[],
        own_folder=False,
        home=None,
        named=[],
        takes_open=False,
        container=None,
        socket=None,
        keep=None,
    )
    found = supervisor._Supervisor(tmp_path / "task-0.json", plan)
    assert found._start()
    return found


def test_is_given_again_also_where_the_clock_was_set_forward_meanwhile(
    started: supervisor._Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3_600.0)
    started._pass_notice_on()
    assert started._notice_again is not None


def test_is_not_given_again_for_hours_where_the_clock_was_set_back_meanwhile(
    started: supervisor._Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, since_boot = time.time(), time.monotonic()
    monkeypatch.setattr(time, "time", lambda: now - 3_600.0)
    monkeypatch.setattr(time, "monotonic", lambda: since_boot + 60.0)
    started._pass_notice_on()
    assert started._notice_again is None
