"""A task has left its device when the driver says so: of each of its processes, and by its list of those on devices."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from test_undoing_moves import FIRST, SECOND, TASK, Node

from millpond.model.hardware.telemetry import DeviceSample, ProcessSample
from millpond.node.sharing.backend import MoveOutcome, MoveResult
from millpond.node.sharing.checkpoint import CheckpointMover, listed_mib
from millpond.node.sharing.helper import DriverError, ProcessState
from millpond.node.task.records import TaskId


class MovableNode(Node):
    """A node whose driver moves both processes."""

    def __init__(self, look_s: float = 0.01) -> None:
        super().__init__(look_s, 0.1)
        self.live = [FIRST, SECOND]

    def pids(self, task: TaskId) -> list[int]:
        return list(self.live)

    def checkpoint(self, pid: int, timeout_s: float) -> None:
        self.states[pid] = ProcessState.CHECKPOINTED


class EndingNode(MovableNode):
    """One whose second process ends as the driver is asked where it is."""

    def state(self, pid: int, timeout_s: float) -> ProcessState | None:
        if pid == SECOND:
            self.live = [FIRST]
            raise DriverError("CUDA_ERROR_INVALID_VALUE")
        return super().state(pid, timeout_s)


def swapped_out(node: MovableNode, resident_mib: Callable[[TaskId], int] = lambda task: 0) -> MoveResult:
    mover = CheckpointMover(node, node, lambda task: 64, resident_mib, node.clock, sleep=lambda seconds: None)
    return mover.swap_out(TASK, 110.0)


def test_a_process_that_ends_as_the_driver_is_asked_keeps_the_others_from_nothing() -> None:
    node = EndingNode()
    assert swapped_out(node).ok
    assert node.states[FIRST] is ProcessState.CHECKPOINTED


def test_a_task_is_lost_whose_driver_does_not_even_say_where_it_is() -> None:
    answer = swapped_out(MovableNode(look_s=60.0))
    assert (answer.outcome, answer.reason) == (
        MoveOutcome.LOST,
        "the driver does not even say where its memory is",
    )


@pytest.mark.parametrize(("looks", "is_gone"), [(5, True), (10**6, False)])
def test_what_the_driver_lists_a_moment_longer_has_left_and_what_it_goes_on_listing_has_not(
    looks: int, is_gone: bool
) -> None:
    listed = iter([640] * min(looks, 1000) + [0] * 1000)
    node = MovableNode()
    answer = swapped_out(node, lambda task: next(listed))
    assert answer.ok == is_gone
    wanted = ProcessState.CHECKPOINTED if is_gone else ProcessState.RUNNING
    assert set(node.states.values()) == {wanted}


def test_a_task_has_what_the_driver_lists_for_its_processes_on_all_devices() -> None:
    one = DeviceSample("gpu-0", processes=(ProcessSample(FIRST, 600), ProcessSample(77, 5000)))
    other = DeviceSample("gpu-1", processes=(ProcessSample(SECOND, 40), ProcessSample(FIRST, None)))
    assert listed_mib([one, other, DeviceSample("gpu-2")], {FIRST, SECOND}) == 640
