"""A state directory as a long-lived server leaves it: thousands of ended jobs with their records and their output."""

from __future__ import annotations

import json
from pathlib import Path

from millpond.node.host import procfs
from millpond.node.task.records import TaskFiles, TaskId
from millpond.server.store.books import HeldAmount, UsageChange, UsageInterval
from millpond.server.store.database import sqlite_url
from millpond.server.store.jobs import NewJob
from millpond.server.store.store import Store
from millpond.specs.api.jobs.jobs import JobInfo, TaskInfo

_BEGAN = 1_700_000_000.0
_APART_S = 20.0
_AT_ONCE = 1_000


def fill(state_dir: Path, jobs: int, *, with_files: bool = True) -> None:
    """Make a state directory with so many jobs that have ended, one task each.

    Args:
        with_files: with what their tasks left on the disk too.
    """
    state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    store = Store(sqlite_url(state_dir / "millpond.db"))
    document = {"name": "old", "command": ["true"], "gpus": 1, "env": {"PATH": "/usr/bin:/bin"}}
    for begin in range(0, jobs, _AT_ONCE):
        infos = [_ended(number) for number in range(begin, min(begin + _AT_ONCE, jobs))]
        store.append([], [NewJob(info.id, info.user, info.submitted_at, document) for info in infos])
        store.record([], infos, [change for info in infos for change in _used(info)])
        for info in infos if with_files else ():
            _leave_files(state_dir, info)
    store.close()


def _ended(number: int) -> JobInfo:
    at = _BEGAN + number * _APART_S
    task = TaskInfo(task=0, role="worker", state="succeeded", node="fake-1", exit_code=0)
    return JobInfo(
        id=f"old-{number:06d}",
        name="old",
        queue="default",
        pool="default",
        user="ada",
        kind="train",
        priority="normal",
        state="succeeded",
        attempt=1,
        submitted_at=at,
        first_started_at=at + 1,
        started_at=at + 1,
        ended_at=at + 60,
        gpus="1",
        gpu_milli=1000,
        exit_code=0,
        tasks=[task],
    )


def _used(info: JobInfo) -> tuple[UsageChange, UsageChange]:
    """What it held, from its start to its end."""
    begun, ended = info.started_at or 0.0, info.ended_at or 0.0
    held = HeldAmount("A100", info.gpu_milli, 1_000, 1_024)
    interval = UsageInterval(info.id, info.user, info.queue, info.kind, begun, held)
    return UsageChange(info.id, begun, (interval,), is_first=True), UsageChange(info.id, ended, ())


def _leave_files(state_dir: Path, info: JobInfo) -> None:
    files = TaskFiles.of(state_dir, TaskId(info.id, 1, 0))
    files.record.parent.mkdir(parents=True)
    record = {
        "job": info.id,
        "attempt": 1,
        "task": 0,
        "role": "worker",
        "node": "fake-1",
        "decision": 0,
        "devices": ["FAKE-fake-1-0"],
        "notice_signal": "SIGTERM",
        "saves": False,
        "boot_id": procfs.boot_id(),
        "supervisor_pid": 2**22,
        "supervisor_start": 1,
        "pid": 2**22 + 1,
        "started_at": info.started_at,
        "exit_code": 0,
        "ended_at": info.ended_at,
        "forced": False,
        "out_of_memory": False,
    }
    files.record.write_text(json.dumps(record))
    files.log.write_text("done\n")
