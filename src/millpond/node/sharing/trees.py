"""The processes of tasks: who they are, halting them for certain, letting them go on."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from millpond.model.units import MIB
from millpond.node.host import cgroups, procfs
from millpond.node.sharing.desired_state import DesiredState, DesiredStates
from millpond.node.task import runner
from millpond.node.task.records import RunRecord, TaskId

_LOOK_AGAIN_S = 0.002

ChildrenByParent: TypeAlias = Mapping[int, Sequence[int]]
"""Processes of the machine, as ``procfs.children`` finds them."""


class TaskProcesses(Protocol):
    """A task that has been started, as far as its processes go."""

    @property
    def groups(self) -> Sequence[str]:
        """Folders of control groups that have its processes, and no others."""

    @property
    def is_halted_by_group(self) -> bool:
        """Whether its groups are halted as a whole where the kernel can do that."""

    def let_have(self, mib: int) -> None:
        """Let it have so much host memory beyond its own bound, if it has one."""

    def pids(self, by_parent: ChildrenByParent | None = None) -> list[int]:
        """All its processes that live.

        Args:
            by_parent: what a look at the machine has just found; None: look now.
        """


@dataclass(frozen=True, slots=True)
class RecordedProcesses:
    """Those of a task with a supervisor (``TaskProcesses``)."""

    record: RunRecord

    @property
    def groups(self) -> Sequence[str]:
        """See ``TaskProcesses``."""
        return self.record.groups

    @property
    def is_halted_by_group(self) -> bool:
        """See ``TaskProcesses``; what is in a container has groups of its runtime's too."""
        return not self.record.container

    def let_have(self, mib: int) -> None:
        """See ``TaskProcesses``."""
        if self.record.memory_limit_mib:
            cgroups.bound(self.record.groups, (self.record.memory_limit_mib + mib) * MIB)

    def pids(self, by_parent: ChildrenByParent | None = None) -> list[int]:
        """See ``TaskProcesses``."""
        record = self.record
        if not record.alive:
            return []
        if by_parent is not None and not record.detached:
            return procfs.below([record.supervisor_pid], by_parent)
        return runner.processes_of(record)


class _Survey(threading.local):
    """What a thread saw when it looked at all processes."""

    by_parent: dict[int, list[int]] | None = None


@dataclass(slots=True)
class TaskTrees:
    """The tasks of one engine.

    Attributes:
        processes_of: those of a task that runs; None for any other.
        desired_states: what the core wants of them.
        gate: keeps a task's programs from giving the device more to do, or lets them.
        is_ending: a task has been asked to end and must hear it: it is halted no more.
    """

    processes_of: Callable[[TaskId], TaskProcesses | None]
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
        processes = self.processes_of(task)
        return [] if processes is None else processes.pids(self._survey.by_parent)

    def halt(self, task: TaskId, timeout_s: float) -> bool:
        """Halt them all; False, and they go on, when that does not succeed in time."""
        give_up = time.monotonic() + timeout_s
        while (processes := self.processes_of(task)) is not None and not self.is_ending(task):
            if not (processes.is_halted_by_group and cgroups.freeze(processes.groups)):
                runner.freeze(processes.pids)
            if self.is_halted(task):
                break
            if time.monotonic() >= give_up:
                self.go_on(task)
                return False
            time.sleep(_LOOK_AGAIN_S)
        if processes is None or self.is_ending(task):
            self.go_on(task)  # lest it was asked to end while we halted it
            return False
        return True

    def go_on(self, task: TaskId) -> None:
        """Let them go on."""
        processes = self.processes_of(task)
        if processes is not None:
            cgroups.thaw(processes.groups)
            runner.thaw(processes.pids())

    def is_halted(self, task: TaskId) -> bool:
        """Whether every thread of every process stands."""
        processes = self.processes_of(task)
        if processes is not None and cgroups.is_frozen(processes.groups):
            return True
        pids = self.pids(task)
        return bool(pids) and all(procfs.is_halted(pid) for pid in pids)

    def hold_launches(self, task: TaskId, held: bool) -> None:
        """Keep its programs from giving the device more to do, where something can."""
        self.gate(task, held)

    def hold_device_memory(self, task: TaskId, mib: int) -> None:
        """Let it have so much host memory beyond its own bound: what leaves a device becomes memory of the process."""
        processes = self.processes_of(task)
        if processes is not None:
            processes.let_have(mib)

    def stays_halted(self, task: TaskId) -> bool:
        """Whether the core wants it frozen, wherever its memory is."""
        return self.desired_states.of(task) is DesiredState.FROZEN
