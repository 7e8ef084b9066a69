"""The devices on which this engine's tasks belong: on disk, in memory, and for what holds them to their slices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from millpond.engines.local.live_tasks import LiveTasks
from millpond.engines.local.slices import Slices
from millpond.model.decisions import Grant
from millpond.node.task.records import TaskFiles, TaskId, write_home


@dataclass(frozen=True, slots=True)
class TaskAssignments:
    """The tasks of one engine.

    Attributes:
        environment: variables by which programs find devices, by their UUIDs.
    """

    state_dir: Path
    live: LiveTasks
    slices: Slices
    environment: Callable[[Sequence[str]], Mapping[str, str]]

    def of(self, task: TaskId) -> tuple[Grant, ...]:
        """See ``DeviceAssignments``."""
        live = self.live.get(task)
        return () if live is None else live.record.grants

    def move(self, task: TaskId, grants: Sequence[Grant], left: Sequence[str]) -> None:
        """See ``DeviceAssignments``. What holds it follows first: the next engine finds out itself whether it has."""
        self.slices.move(task, grants)
        self._note(task, grants, left)

    def arrived(self, task: TaskId) -> None:
        """See ``DeviceAssignments``."""
        live = self.live.get(task)
        if live is not None and live.record.left:
            self._note(task, live.record.grants, ())

    def _note(self, task: TaskId, grants: Sequence[Grant], left: Sequence[str]) -> None:
        env = self.environment([grant.device for grant in grants])
        write_home(TaskFiles.of(self.state_dir, task), grants, left, env)
        self.live.move(task, grants, left)
