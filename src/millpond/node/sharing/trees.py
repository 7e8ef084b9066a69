"""The processes of tasks: who they are, halting them for certain, letting them go on."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from millpond.node.host import cgroups, procfs
from millpond.node.sharing.desired_state import DesiredState, DesiredStates
from millpond.node.task import runner
from millpond.node.task.records import RunRecord, TaskId

_LOOK_AGAIN_S = 0.002


class _Survey(threading.local):
    """What a thread saw when it looked at all processes."""

    by_parent: dict[int, list[int]] | None = None


@dataclass(slots=True)
class TaskTrees:
    """The tasks of one engine.

    Attributes:
        record_of: of a task that runs; None for any other.
        desired_states: what the core wants of them.
        gate: keeps a task's programs from giving the device more to do, or lets them.
        is_ending: a task has been asked to end and must hear it: it is halted no more.
    """

    record_of: Callable[[TaskId], RunRecord | None]
    desired_states: DesiredStates
    gate: Callable[[TaskId, bool], None]
    is_ending: Callable[[TaskId], bool]
    _survey: _Survey = field(default_factory=_Survey, init=False)

    @contextlib.contextmanager
    def surveyed(self) -> Iterator[None]:
        """Within, this thread looks at all processes of the machine once, not anew for each task."""
        self._survey.by_parent = procfs.children()
        try:
            yield
        finally:
            self._survey.by_parent = None

    def pids(self, task: TaskId) -> list[int]:
        """All processes of a task that live; none when it is over."""
        record = self.record_of(task)
        if record is None or not record.alive:
            return []
        if self._survey.by_parent is not None and not record.detached:
            return procfs.below([record.supervisor_pid], self._survey.by_parent)
        return runner.processes_of(record)

    def halt(self, task: TaskId, timeout_s: float) -> bool:
        """Halt them all; False, and they go on, when that does not succeed in time."""
        give_up = time.monotonic() + timeout_s
        while (record := self.record_of(task)) is not None and not self.is_ending(task):
            if not (record.container == "" and cgroups.freeze(record.groups)):
                runner.freeze(record)
            if self.is_halted(task):
                break
            if time.monotonic() >= give_up:
                self.go_on(task)
                return False
            time.sleep(_LOOK_AGAIN_S)
        if record is None or self.is_ending(task):
            self.go_on(task)  # lest it was asked to end while we halted it
            return False
        return True

    def go_on(self, task: TaskId) -> None:
        """Let them go on."""
        record = self.record_of(task)
        if record is not None:
            cgroups.thaw(record.groups)
            runner.thaw(record)

    def is_halted(self, task: TaskId) -> bool:
        """Whether every thread of every process stands."""
        record = self.record_of(task)
        if record is not None and cgroups.is_frozen(record.groups):
            return True
        pids = self.pids(task)
        return bool(pids) and all(procfs.is_halted(pid) for pid in pids)

    def hold_launches(self, task: TaskId, held: bool) -> None:
        """Keep its programs from giving the device more to do, where something can."""
        self.gate(task, held)

    def hold_device_memory(self, task: TaskId, mib: int) -> None:
        """Let it have so much host memory beyond its own bound: what leaves a device becomes memory of the process."""
        record = self.record_of(task)
        if record is not None and record.memory_limit_mib:
            cgroups.bound(record.groups, record.memory_limit_mib + mib)

    def stays_halted(self, task: TaskId) -> bool:
        """Whether the core wants it frozen, wherever its memory is."""
        return self.desired_states.of(task) is DesiredState.FROZEN
