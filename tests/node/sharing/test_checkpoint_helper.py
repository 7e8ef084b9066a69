"""The real helper, by the real bindings, on pretended cards: what it answers, and what becomes of one that hangs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from fake_driver.driver import MIB, Action, FakeDriver, Use
from fake_driver.program import Program
from millpond.node.sharing.backend import MoveOutcome, Whereabouts
from millpond.node.sharing.checkpoint import CheckpointMover
from millpond.node.sharing.helper import CheckpointHelper, DriverError, DriverHungError, ProcessState
from millpond.node.task.records import TaskId

TASK = TaskId("job", 1, 0)


@pytest.fixture
def helper(fake_driver: FakeDriver) -> Iterator[CheckpointHelper]:
    helper = CheckpointHelper({**os.environ, **fake_driver.env()})
    yield helper
    helper.close()


@pytest.fixture
def program(fake_driver: FakeDriver) -> Iterator[Program]:
    with Program(fake_driver.env()) as program:
        assert program("start") == [0]
        yield program


@dataclass
class Tree:
    """The task's processes; as ``trees.TaskTrees`` without halting them."""

    processes: list[int]
    halted: bool = False
    held: list[bool] = field(default_factory=list)
    borne: list[int] = field(default_factory=list)

    def pids(self, task: TaskId) -> list[int]:
        return self.processes

    def halt(self, task: TaskId, timeout_s: float) -> bool:
        self.halted = True
        return True

    def go_on(self, task: TaskId) -> None:
        self.halted = False

    def is_halted(self, task: TaskId) -> bool:
        return self.halted

    def hold_launches(self, task: TaskId, held: bool) -> None:
        self.held.append(held)

    def hold_device_memory(self, task: TaskId, mib: int) -> None:
        self.borne.append(mib)

    def stays_halted(self, task: TaskId) -> bool:
        return False


def test_a_program_leaves_its_card_and_returns_with_what_it_had(
    fake_driver: FakeDriver, helper: CheckpointHelper, program: Program
) -> None:
    [card] = fake_driver.cards
    _, pointer = program("alloc", 64 * MIB)
    program("fill", pointer, 7, 1000)
    idle, tree = os.getpid(), Tree([])
    tree.processes = [idle, program.pid]  # one that never used a card takes no part
    mover = CheckpointMover(helper, tree, lambda task: 64)
    assert mover.swap_out(TASK, 20.0).ok
    assert fake_driver.used_bytes(card) == 0
    assert mover.whereabouts(TASK, 60.0) is Whereabouts.SWAPPED
    assert mover.swap_in(TASK, 20.0).ok
    assert program("sum", pointer, 1000) == [0, 7000]
    assert tree.held == [True, False]
    assert tree.borne == [64, 0]  # what has left the device counts as the process's own


def test_work_that_does_not_end_leaves_the_program_where_it_was(
    fake_driver: FakeDriver, helper: CheckpointHelper, program: Program
) -> None:
    assert helper.probe().usable  # up before the clock runs
    program("launch", 60_000_000_000)
    answer = CheckpointMover(helper, Tree([program.pid]), lambda task: 64).swap_out(TASK, 0.5)
    assert answer.outcome is MoveOutcome.TIMEOUT
    assert "it has work on the device that does not end" in answer.reason
    assert helper.state(program.pid, 60.0) is ProcessState.RUNNING


def test_a_return_without_room_waits_on_the_host(
    fake_driver: FakeDriver, helper: CheckpointHelper, program: Program
) -> None:
    program("alloc", 2048 * MIB)
    mover = CheckpointMover(helper, Tree([program.pid]), lambda task: 64)
    assert mover.swap_out(TASK, 20.0).ok
    with Program(fake_driver.env()) as stranger:
        stranger("start")
        stranger("alloc", 3000 * MIB)
        answer = mover.swap_in(TASK, 20.0)
        assert (answer.outcome, answer.reason) == (
            MoveOutcome.TIMEOUT,
            "its device has no room for it; another task took it meanwhile",
        )
    assert mover.whereabouts(TASK, 60.0) is Whereabouts.SWAPPED
    assert mover.swap_in(TASK, 20.0).ok


@pytest.mark.parametrize(
    "use", [Use.MANAGED, *(pytest.param(use, marks=pytest.mark.long) for use in (Use.IPC, Use.MPS, Use.MIG))]
)
def test_what_the_driver_cannot_move_is_refused_and_goes_on(
    use: Use, fake_driver: FakeDriver, helper: CheckpointHelper, program: Program
) -> None:
    fake_driver.mark(program.pid, use)
    answer = CheckpointMover(helper, Tree([program.pid]), lambda task: 64).swap_out(TASK, 20.0)
    assert answer.outcome is MoveOutcome.UNSUPPORTED
    assert helper.state(program.pid, 60.0) is ProcessState.RUNNING


def test_a_helper_that_hangs_is_replaced(fake_driver: FakeDriver, helper: CheckpointHelper, program: Program) -> None:
    fake_driver.plan("cuCheckpointProcessLock", Action.HANG, times=1)
    with pytest.raises(DriverHungError):
        helper.lock(program.pid, -1.9)  # with what it is given beside, a tenth of a second
    assert helper.state(program.pid, 60.0) is ProcessState.RUNNING


def test_a_helper_that_dies_in_a_call_is_replaced(
    fake_driver: FakeDriver, helper: CheckpointHelper, program: Program
) -> None:
    fake_driver.plan("cuCheckpointProcessLock", Action.KILL_CALLER, times=1)
    assert (
        CheckpointMover(helper, Tree([program.pid]), lambda task: 64).swap_out(TASK, 20.0).outcome
        is MoveOutcome.TIMEOUT
    )
    assert helper.state(program.pid, 60.0) is ProcessState.RUNNING


def test_a_program_that_the_driver_gave_up_on_is_lost(
    fake_driver: FakeDriver, helper: CheckpointHelper, program: Program
) -> None:
    fake_driver.plan("cuCheckpointProcessCheckpoint", Action.FAIL_TARGET, result=999, times=1)
    answer = CheckpointMover(helper, Tree([program.pid]), lambda task: 64).swap_out(TASK, 20.0)
    assert answer.outcome is MoveOutcome.LOST


def test_a_wrong_state_is_the_drivers_own_error(helper: CheckpointHelper, program: Program) -> None:
    with pytest.raises(DriverError, match="CUDA_ERROR_ILLEGAL_STATE"):
        helper.unlock(program.pid, 5.0)


def test_without_a_driver_the_reason_is_told() -> None:
    helper = CheckpointHelper({**os.environ, "LD_LIBRARY_PATH": ""})
    capability = helper.probe()
    assert not capability.usable
    assert "driver" in capability.reason
