"""A pretended node of devices on a virtual clock, with the faults of a real driver: for walks through the sharing code.

It is driver and process tree at once (``CheckpointHelper`` and ``TaskTrees`` of ``node.sharing``). Memory is conserved:
what processes use, contexts included, never exceeds a device, and a restore that finds no room fails. Each call takes
time; one that would take longer than its caller waits is a driver that hung. A process that is halted does nothing for
the driver. Which call goes wrong, and how, is drawn by a seeded generator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from millpond.model.decisions import Grant
from millpond.node.sharing.desired_state import DesiredState
from millpond.node.sharing.helper import DriverError, DriverHungError, ProcessState
from millpond.node.task.records import TaskId

CONTEXT_MIB = 500
_MIB_PER_S = 10_000.0
_CALL_S = 0.01
_HANG = 1e9


class AgentKilledError(Exception):
    """The agent was killed in the middle of a call."""


@dataclass(slots=True)
class FakeProcess:
    """One process; without a device it is one the driver does not know.

    Attributes:
        used_mib: on its device, or when checkpointed what it used there.
        kernel_s: how long what it has submitted still runs.
        moves: the driver can checkpoint it.
        drawing: it has memory that is not CUDA's, which no checkpoint knows.
        secret: the driver does not say where its memory is.
    """

    task: TaskId | None
    device: str = ""
    used_mib: int = 0
    kernel_s: float = 0.0
    moves: bool = True
    drawing: bool = False
    secret: bool = False
    state: ProcessState = ProcessState.RUNNING
    halted: bool = False


@dataclass(slots=True)
class FakeNode:
    """Any number of devices, and the processes on them.

    Attributes:
        capacity_mib: of each device.
        faults: how probable each fault is at each call.
        fault_count: faults that came about.
        desired_states, assignments, held: what outlives the agent, as files would.
    """

    capacity_mib: Mapping[str, int]
    random: Random
    faults: Mapping[str, float] = field(default_factory=dict)
    now: float = 0.0
    processes: dict[int, FakeProcess] = field(default_factory=dict)
    desired_states: dict[TaskId, DesiredState] = field(default_factory=dict)
    assignments: dict[TaskId, tuple[tuple[Grant, ...], tuple[str, ...]]] = field(default_factory=dict)
    held: set[TaskId] = field(default_factory=set)
    fault_count: dict[str, int] = field(default_factory=dict)
    next_pid: int = 1000

    def clock(self) -> float:
        """Seconds since the beginning."""
        return self.now

    # ---- the world --------------------------------------------------------------------------------------------------

    def begin(self, process: FakeProcess) -> int:
        """A process begins; its context has to fit."""
        self.next_pid += 1
        self.processes[self.next_pid] = process
        return self.next_pid

    def kill(self, task: TaskId) -> None:
        """All processes of a task end at once."""
        for pid in self.pids(task):
            del self.processes[pid]

    def of(self, task: TaskId) -> list[FakeProcess]:
        """Its processes."""
        return [process for process in self.processes.values() if process.task == task]

    def used_mib(self, device: str) -> int:
        """What is really used of a device."""
        return sum(
            process.used_mib
            for process in self.processes.values()
            if process.device == device and process.state is not ProcessState.CHECKPOINTED
        )

    def resident_mib(self, task: TaskId) -> int:
        """What a task has on its devices, as the driver lists it."""
        return sum(process.used_mib for process in self.of(task) if process.state is not ProcessState.CHECKPOINTED)

    def sleep(self, seconds: float) -> None:
        """Time passes."""
        self.now += seconds

    # ---- trees ------------------------------------------------------------------------------------------------------

    def pids(self, task: TaskId) -> list[int]:
        """See ``Trees``."""
        return [pid for pid, process in self.processes.items() if process.task == task]

    def halt(self, task: TaskId, timeout_s: float) -> bool:
        """See ``Trees``."""
        self._perhaps_killed()
        if self._strikes("cannot be halted"):
            self.now += timeout_s
            for process in self.of(task):
                process.halted = False
            return False
        for process in self.of(task):
            process.halted = True
        return bool(self.pids(task))

    def go_on(self, task: TaskId) -> None:
        """See ``Trees``."""
        for process in self.of(task):
            process.halted = False
        self._perhaps_killed()

    def is_halted(self, task: TaskId) -> bool:
        """See ``Trees``."""
        return all(process.halted for process in self.of(task))

    def hold_launches(self, task: TaskId, held: bool) -> None:
        """See ``Trees``. What stands before the device stays as it is when the agent is killed."""
        (self.held.add if held else self.held.discard)(task)
        self._perhaps_killed()

    def hold_device_memory(self, task: TaskId, mib: int) -> None:
        """See ``Trees``. The host is not part of this."""

    def stays_halted(self, task: TaskId) -> bool:
        """See ``Trees``."""
        return self.desired_states.get(task) is DesiredState.FROZEN

    # ---- driver -----------------------------------------------------------------------------------------------------

    def state(self, pid: int, timeout_s: float) -> ProcessState | None:
        """See ``Driver``."""
        process = self.processes.get(pid)
        if process is None:
            raise DriverError("CUDA_ERROR_INVALID_VALUE")
        if process.secret:
            raise DriverError("CUDA_ERROR_NOT_PERMITTED")
        if process.device and not process.drawing and process.halted:
            self._take(_HANG, timeout_s)
        return process.state if process.device and not process.drawing else None

    def lock(self, pid: int, timeout_s: float) -> None:
        """See ``Driver``."""
        process = self._called(pid, ProcessState.RUNNING)
        if process.halted or process.kernel_s > timeout_s or self._strikes("work does not end"):
            self.now += timeout_s
            raise DriverError("CUDA_ERROR_NOT_READY")
        self._take(process.kernel_s, timeout_s)
        process.kernel_s = 0.0
        self._settle(pid, process, ProcessState.LOCKED, timeout_s)

    def checkpoint(self, pid: int, timeout_s: float) -> None:
        """See ``Driver``."""
        process = self._called(pid, ProcessState.LOCKED)
        if not process.moves:
            raise DriverError("CUDA_ERROR_NOT_SUPPORTED")
        self._take(_HANG if process.halted else process.used_mib / _MIB_PER_S, timeout_s)
        if self._strikes("checkpoint fails"):
            process.state = ProcessState.FAILED
            raise DriverError("CUDA_ERROR_UNKNOWN")
        self._settle(pid, process, ProcessState.CHECKPOINTED, timeout_s)

    def restore(self, pid: int, timeout_s: float, moves: Mapping[str, str]) -> None:
        """See ``Driver``."""
        process = self._called(pid, ProcessState.CHECKPOINTED)
        device = moves.get(process.device, process.device)
        if moves and self._strikes("map refused"):
            raise DriverError("CUDA_ERROR_INVALID_VALUE")
        if self.used_mib(device) + process.used_mib > self.capacity_mib[device]:
            raise DriverError("CUDA_ERROR_OUT_OF_MEMORY")
        self._take(_HANG if process.halted else process.used_mib / _MIB_PER_S, timeout_s)
        self._settle(pid, process, ProcessState.LOCKED, timeout_s, device)

    def unlock(self, pid: int, timeout_s: float) -> None:
        """See ``Driver``."""
        process = self._called(pid, ProcessState.LOCKED)
        self._settle(pid, process, ProcessState.RUNNING, timeout_s)

    def _called(self, pid: int, wanted: ProcessState) -> FakeProcess:
        self.now += _CALL_S
        self._perhaps_killed()
        process = self.processes.get(pid)
        if process is None:
            raise DriverError("CUDA_ERROR_INVALID_VALUE")
        if process.state is not wanted:
            raise DriverError("CUDA_ERROR_ILLEGAL_STATE")
        return process

    def _settle(
        self, pid: int, process: FakeProcess, then: ProcessState, timeout_s: float, device: str | None = None
    ) -> None:
        """The call takes effect, unless something happens in the middle of it.

        Args:
            device: where its memory is then; None: where it was.
        """
        if self._strikes("helper hangs before"):
            self.now += timeout_s
            raise DriverHungError
        if self._strikes("target ends"):
            assert process.task is not None
            self.kill(process.task)
            raise DriverError("CUDA_ERROR_INVALID_VALUE")
        process.state = then
        process.device = process.device if device is None else device
        self._perhaps_killed()
        if self._strikes("helper hangs after"):
            self.now += timeout_s
            raise DriverHungError

    def _take(self, seconds: float, timeout_s: float) -> None:
        if seconds > timeout_s:
            self.now += timeout_s
            raise DriverHungError
        self.now += seconds

    def _perhaps_killed(self) -> None:
        if self._strikes("agent killed"):
            raise AgentKilledError

    def _strikes(self, fault: str) -> bool:
        strikes = self.random.random() < self.faults.get(fault, 0.0)
        if strikes:
            self.fault_count[fault] = self.fault_count.get(fault, 0) + 1
        return strikes
