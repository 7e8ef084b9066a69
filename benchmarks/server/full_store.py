"""A state directory as a long-lived server leaves it: ended jobs with records and output, and the pool's history.

Jobs differ as they do in life: one user and one name have most of them, hundreds of others have some, and a few failed
or were cancelled, some of these before they had started.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from millpond.node.host import procfs
from millpond.node.task.records import TaskFiles, TaskId
from millpond.server.monitoring.time_series.figures import FIGURES, Subject
from millpond.server.monitoring.time_series.recorder import RESOLUTIONS
from millpond.server.store.connection.database import sqlite_url
from millpond.server.store.jobs import NewJob
from millpond.server.store.statistics.books import HeldAmount, UsageChange, UsageInterval
from millpond.server.store.statistics.card_use import JobCardUse
from millpond.server.store.statistics.time_series import SeriesRow
from millpond.server.store.store import Store
from millpond.specs.api.jobs.jobs import JobInfo, TaskInfo
from millpond.specs.calendar_spans import day_begin, day_of

RARE_QUEUE = "rare"
"""One job in 5,000 was in it, all others in ``default``."""
_MODEL = "A100"
_BEGAN = 1_700_000_000.0
_APART_S = 20.0
_AT_ONCE = 1_000


def fill(state_dir: Path, jobs: int, *, url: str = "", with_files: bool = True) -> None:
    """Make a state directory with so many jobs that have ended, one task each.

    Args:
        url: of the database; empty: the state directory's own.
        with_files: with what their tasks left on the disk too.
    """
    state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    store = Store(url or sqlite_url(state_dir / "millpond.db"))
    for begin in range(0, jobs, _AT_ONCE):
        infos = [_ended(number) for number in range(begin, min(begin + _AT_ONCE, jobs))]
        store.append([], [NewJob(info.id, info.user, info.submitted_at, _document(info)) for info in infos])
        store.record([], infos, [change for info in infos for change in _used(info)])
        store.card_use.add([measured for info in infos for measured in _measured(info)])
        for info in infos if with_files else ():
            _leave_files(state_dir, info)
    store.close()


def remember_pool(state_dir: Path, now: float, model: str, queues: int, *, url: str = "") -> None:
    """Add the history of 30 days, in all its resolutions: of one model of cards, and of so many queues."""
    store = Store(url or sqlite_url(state_dir / "millpond.db"))
    names = {Subject.MODELS: [model], Subject.QUEUES: [f"queue-{number}" for number in range(queues)]}
    for level in RESOLUTIONS:
        first, last = (int(at // level.step_s) * level.step_s for at in (now - level.kept_s, now))
        rows = [
            SeriesRow(subject, level.step_s, at, level.step_s // RESOLUTIONS[0].step_s, look)
            for at in range(first, last, level.step_s)
            for subject, series in names.items()
            for look in [{name: _figures(at + place, len(FIGURES[subject])) for place, name in enumerate(series)}]
        ]
        store.time_series.write(rows)
    store.close()


def _figures(seed: int, many: int) -> tuple[float, ...]:
    return tuple(float((seed * 7_919 + number * 104_729) % 40_000) for number in range(many))


def _document(info: JobInfo) -> dict[str, Any]:
    cards = info.gpu_milli // 1_000
    return {"name": info.name, "command": ["true"], "gpus": cards, "env": {"PATH": "/usr/bin:/bin"}}


def _ended(number: int) -> JobInfo:
    at = _BEGAN + number * _APART_S
    state = {3: "failed", 7: "cancelled"}.get(number % 20, "succeeded")
    started = None if number % 40 == 7 else at + 1 + number % 600
    cards = (1, 1, 2, 4, 8)[number % 5]
    code = {"succeeded": 0, "failed": 1}.get(state)
    task = TaskInfo(task=0, role="worker", state=state, node="fake-1", exit_code=code)
    return JobInfo(
        id=f"old-{number:06d}",
        name="old" if number % 4 else f"run-{number % 1_000}",
        queue=RARE_QUEUE if number % 5_000 == 11 else "default",
        pool="default",
        user="ada" if number % 2 else f"user-{number % 97}",
        kind="train",
        priority="normal",
        state=state,
        attempt=0 if started is None else 1,
        submitted_at=at,
        first_started_at=started,
        started_at=started,
        ended_at=at + 60 if started is None else started + 60,
        gpus=str(cards),
        gpu_milli=1_000 * cards,
        exit_code=code,
        tasks=[task],
    )


def _used(info: JobInfo) -> Iterator[UsageChange]:
    """What it held, from its start to its end."""
    if info.started_at is not None and info.ended_at is not None:
        held = HeldAmount(_MODEL, info.gpu_milli, 1_000, 1_024)
        interval = UsageInterval(info.id, info.user, info.queue, info.kind, info.started_at, held)
        yield UsageChange(info.id, info.started_at, (interval,), is_first=True)
        yield UsageChange(info.id, info.ended_at, ())


def _measured(info: JobInfo) -> Iterator[JobCardUse]:
    """What it made of that."""
    if info.started_at is not None and info.ended_at is not None:
        begin, end = info.started_at, info.ended_at
        gpu_s = (end - begin) * info.gpu_milli / 1_000
        whose = (info.id, _MODEL, day_begin(day_of(begin)), info.user, info.queue, info.group, info.kind)
        yield JobCardUse(*whose, begin, end, gpu_s, gpu_s / 2, gpu_s / 4)


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
