"""The tasks that run now, each watched through its supervisor."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from millpond.engines.local.background import when_possible
from millpond.engines.local.ports import recall
from millpond.model.decisions import Grant
from millpond.node.host.files import short_name
from millpond.node.task import runner, running_tasks
from millpond.node.task.kept_place import ANNOUNCEMENTS, MOST_ANNOUNCED
from millpond.node.task.records import RunRecord, TaskFiles, TaskId, attempt_dir, moved, read_record


@dataclass(frozen=True, slots=True)
class Live:
    """A task that runs.

    Attributes:
        record: as it was when we began to watch, but for its devices.
        handle: becomes readable when its supervisor ends.
        port: where its gang meets.
        expected: the core knows of it and wants to hear of its end.
    """

    record: RunRecord
    handle: int
    port: int
    expected: bool


class LiveTasks:
    """All tasks under watch. Lives on the engine's loop, but for ``records``.

    Args:
        state_dir: absolute; where records and logs lie.
        on_end: called with each end, with what the record says now.
        on_kept: called with a task whose supervisor announces that its place is kept (``node.task.kept_place``).

    Raises:
        OSError: no socket for announcements can be made in the state directory.
    """

    def __init__(
        self,
        state_dir: Path,
        loop: asyncio.AbstractEventLoop,
        on_end: Callable[[Live, RunRecord], None],
        on_kept: Callable[[TaskId], None],
    ) -> None:
        self.state_dir = state_dir
        self._loop = loop
        self._on_end = on_end
        self._on_kept = on_kept
        self._tasks: dict[TaskId, Live] = {}
        self._guard = threading.Lock()
        self._address = state_dir / ANNOUNCEMENTS
        self._address.unlink(missing_ok=True)
        self._announcements = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)  # before any record is read
        self._announcements.setblocking(False)
        with short_name(self._address) as name:
            self._announcements.bind(name)
        self._address.chmod(0o600)
        loop.add_reader(self._announcements, self._receive)

    def attach(self, record: RunRecord, expected: bool = True) -> Live | None:
        """Watch a task that an earlier engine started; None when it runs no more."""
        handle = runner.attach(record)
        if handle is None:
            return None
        meeting = recall(attempt_dir(self.state_dir, record.id.job, record.id.attempt))
        return self.watch(record, handle, 0 if meeting is None else meeting.port, expected)

    def watch(self, record: RunRecord, handle: int, port: int, expected: bool = True) -> Live:
        """Watch a task through this handle, which is ours from now on; one that is watched already stays so.

        Args:
            port: where its gang meets; 0: nowhere.
        """
        known = self._tasks.get(record.id)
        if known is not None and known.record.decision == record.decision:
            os.close(handle)
            with self._guard:
                known = self._tasks[record.id]
                self._tasks[record.id] = replace(known, expected=known.expected or expected)
            return self._tasks[record.id]
        live = Live(record, handle, port, expected)
        self._tasks[record.id] = live
        self._loop.add_reader(handle, self._over, record.id)
        return live

    def get(self, task: TaskId) -> Live | None:
        """A running task; None if it does not run. Any thread."""
        return self._tasks.get(task)

    def record(self, task: TaskId) -> RunRecord | None:
        """The record of a running task; None if it does not run. Any thread."""
        live = self._tasks.get(task)
        return None if live is None else live.record

    def move(self, task: TaskId, grants: Sequence[Grant], left: Sequence[str]) -> None:
        """Note that a task is on other devices from now on. Any thread."""
        with self._guard:  # lest one that has just ended comes back
            live = self._tasks.get(task)
            if live is not None:
                self._tasks[task] = replace(live, record=moved(live.record, grants, left))

    def records(self) -> list[RunRecord]:
        """The records of all running tasks. Any thread."""
        lives = list(self._tasks.values())  # in one step, as tasks come and go meanwhile
        return [live.record for live in lives]

    def of_run(self, job: str, attempt: int) -> list[Live]:
        """The running tasks of one attempt of a job."""
        return [live for task, live in self._tasks.items() if (task.job, task.attempt) == (job, attempt)]

    def of_start(self, decision: int) -> list[Live]:
        """The running tasks that this decision has started."""
        return [live for live in self._tasks.values() if live.record.decision == decision]

    def ports(self) -> set[int]:
        """The ports at which gangs of running tasks meet, and on which running tasks serve."""
        return {port for live in self._tasks.values() for port in (live.port, live.record.port) if port}

    def pinned(self) -> list[tuple[int, ...]]:
        """The CPUs that running tasks are pinned to."""
        return [live.record.cpus for live in self._tasks.values() if live.record.cpus]

    def request_stop(self, live: Live, request: runner.StopRequest) -> None:
        """Give a task notice and grace."""
        runner.request_stop(TaskFiles.of(self.state_dir, live.record.id), live.handle, request)

    def final_record(self, record: RunRecord) -> RunRecord:
        """What is known of a task whose supervisor is gone; makes sure that nothing of it is left."""
        files = TaskFiles.of(self.state_dir, record.id)
        latest = read_record(files) or record
        if not latest.over:
            runner.kill_remains(files, latest.groups)
        running_tasks.leave(files.record)  # what was killed could not do so itself
        return latest

    def close(self) -> None:
        """Stop watching; the tasks go on."""
        self._loop.remove_reader(self._announcements)
        self._announcements.close()
        self._address.unlink(missing_ok=True)
        for live in self._tasks.values():
            self._loop.remove_reader(live.handle)
            os.close(live.handle)
        self._tasks.clear()

    def _receive(self) -> None:
        try:
            message = json.loads(self._announcements.recv(MOST_ANNOUNCED))
            task = TaskId(str(message["job"]), int(message["attempt"]), int(message["task"]))
        except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
            return
        self._on_kept(task)

    def _over(self, task: TaskId) -> None:
        live = self._tasks[task]
        self._loop.remove_reader(live.handle)
        when_possible(self._loop, lambda: self.final_record(live.record), lambda record: self._report(task, record))

    def _report(self, task: TaskId, record: RunRecord) -> None:
        with self._guard:
            live = self._tasks.pop(task)
        os.close(live.handle)
        self._on_end(live, record)
