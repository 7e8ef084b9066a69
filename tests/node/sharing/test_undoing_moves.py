"""A move that fails is taken back in a time of its own, however large the task and however busy the machine."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from millpond.node.sharing.backend import MoveOutcome
from millpond.node.sharing.checkpoint import CheckpointMover
from millpond.node.sharing.helper import DriverError, DriverHungError, ProcessState
from millpond.node.task.records import TaskId

TASK = TaskId("job", 1, 0)
FIRST, SECOND = 1, 2
MIB = 40_000


class Node:
    """A task of two processes, the second of which the driver does not move; every call takes its time.

    Args:
        look_s: for each look at a process.
        restore_s: for each way back.
    """

    def __init__(self, look_s: float, restore_s: float) -> None:
        self.now = 0.0
        self.states = dict.fromkeys((FIRST, SECOND), ProcessState.RUNNING)
        self._look_s = look_s
        self._restore_s = restore_s

    def clock(self) -> float:
        return self.now

    def _take(self, seconds: float, timeout_s: float) -> None:
        self.now += min(seconds, timeout_s)
        if seconds > timeout_s:
            raise DriverHungError

    def state(self, pid: int, timeout_s: float) -> ProcessState | None:
        self._take(self._look_s, timeout_s)
        return self.states[pid]

    def lock(self, pid: int, timeout_s: float) -> None:
        self.states[pid] = ProcessState.LOCKED

    def checkpoint(self, pid: int, timeout_s: float) -> None:
        if pid == SECOND:
            raise DriverError("CUDA_ERROR_NOT_SUPPORTED")
        self.states[pid] = ProcessState.CHECKPOINTED

    def restore(self, pid: int, timeout_s: float, moves: Mapping[str, str]) -> None:
        self.states[pid] = ProcessState.MOVING
        self._take(self._restore_s, timeout_s)
        self.states[pid] = ProcessState.LOCKED

    def unlock(self, pid: int, timeout_s: float) -> None:
        self.states[pid] = ProcessState.RUNNING

    def pids(self, task: TaskId) -> list[int]:
        return [FIRST, SECOND]

    def halt(self, task: TaskId, timeout_s: float) -> bool:
        return True

    def go_on(self, task: TaskId) -> None:
        pass

    def is_halted(self, task: TaskId) -> bool:
        return False

    def hold_launches(self, task: TaskId, held: bool) -> None:
        pass

    def hold_device_memory(self, task: TaskId, mib: int) -> None:
        pass

    def stays_halted(self, task: TaskId) -> bool:
        return False


@pytest.mark.parametrize(("look_s", "restore_s"), [(0.01, MIB / 5_000), (2.0, 0.1)], ids=["much memory", "slow looks"])
def test_a_task_that_cannot_leave_its_device_is_back_on_it_and_not_lost(look_s: float, restore_s: float) -> None:
    node = Node(look_s, restore_s)
    answer = CheckpointMover(node, node, lambda task: MIB, lambda task: 0, node.clock).swap_out(TASK, 110.0)
    assert answer.outcome is MoveOutcome.UNSUPPORTED, answer.reason
    assert set(node.states.values()) == {ProcessState.RUNNING}
