"""The tasks that run now, each watched through its supervisor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from millpond.engines.local.rendezvous import recall
from millpond.node import runner, supervisor
from millpond.node.records import RunRecord, TaskFiles, TaskId, attempt_dir, read_record


@dataclass(frozen=True, slots=True)
class Live:
    """A task that runs.

    Attributes:
        record: as it was when we began to watch.
        handle: becomes readable when its supervisor ends.
        port: where its gang meets.
        expected: the core knows of it and wants to hear of its end.
    """

    record: RunRecord
    handle: int
    port: int
    expected: bool


class LiveTasks:
    """All tasks under watch. Lives on the engine's loop, but for ``snapshot``.

    Args:
        state_dir: absolute; where records and logs lie.
        on_end: told each end, with what the record says now.
    """

    def __init__(
        self, state_dir: Path, loop: asyncio.AbstractEventLoop, on_end: Callable[[Live, RunRecord], None]
    ) -> None:
        self._state_dir = state_dir
        self._loop = loop
        self._on_end = on_end
        self._tasks: dict[TaskId, Live] = {}
        self.snapshot: tuple[RunRecord, ...] = ()
        """What runs now; replaced as a whole, so that any thread may read it."""

    def attach(self, record: RunRecord, expected: bool = True) -> Live | None:
        """Watch a task that an earlier engine started; None when it runs no more."""
        handle = runner.attach(record)
        return None if handle is None else self.watch(record, handle, expected)

    def watch(self, record: RunRecord, handle: int, expected: bool = True) -> Live:
        """Watch a task through this handle, which is ours from now on."""
        meeting = recall(attempt_dir(self._state_dir, record.id.job, record.id.attempt))
        live = Live(record, handle, 0 if meeting is None else meeting.port, expected)
        self._tasks[record.id] = live
        self._publish()
        self._loop.add_reader(handle, self._over, record.id)
        return live

    def of_run(self, job: str, attempt: int) -> list[Live]:
        """What runs of this run of a job."""
        return [live for task, live in self._tasks.items() if (task.job, task.attempt) == (job, attempt)]

    def of_start(self, decision: int) -> list[Live]:
        """What runs because of this start."""
        return [live for live in self._tasks.values() if live.record.decision == decision]

    def ports(self) -> set[int]:
        """Where gangs meet that run now, and where tasks serve."""
        return {port for live in self._tasks.values() for port in (live.port, live.record.port) if port}

    def pinned(self) -> list[tuple[int, ...]]:
        """The CPUs that running tasks are pinned to."""
        return [live.record.cpus for live in self._tasks.values() if live.record.cpus]

    def request_stop(self, live: Live, grace_s: float) -> None:
        """Give a task notice and grace."""
        runner.request_stop(TaskFiles.of(self._state_dir, live.record.id), live.handle, grace_s)

    def final_record(self, record: RunRecord) -> RunRecord:
        """What is known of a task whose supervisor is gone; makes sure that nothing of it is left."""
        files = TaskFiles.of(self._state_dir, record.id)
        latest = read_record(files) or record
        if not latest.over:
            runner.kill_remains(files, latest.groups)
        supervisor.leave(files.record)  # what was killed could not do so itself
        return latest

    def release(self) -> None:
        """Stop watching; the tasks go on."""
        for live in self._tasks.values():
            self._loop.remove_reader(live.handle)
            runner.reap(live.handle)
        self._tasks.clear()

    def _over(self, task: TaskId) -> None:
        live = self._tasks.pop(task)
        self._publish()
        self._loop.remove_reader(live.handle)
        runner.reap(live.handle)
        self._on_end(live, self.final_record(live.record))

    def _publish(self) -> None:
        self.snapshot = tuple(live.record for live in self._tasks.values())
