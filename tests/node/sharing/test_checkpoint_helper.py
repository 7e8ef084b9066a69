"""The real helper, by the real bindings, on pretended cards: what it answers, and what becomes of one that hangs."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
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
    """The task's processes; as ``trees.TaskTrees``, but for this one, which is not halted."""

    processes: list[int]
    halted: bool = False
    held: list[bool] = field(default_factory=list)
    borne: list[int] = field(default_factory=list)

    def pids(self, task: TaskId) -> list[int]:
        return self.processes

    def halt(self, task: TaskId, timeout_s: float) -> bool:
        self._tell(signal.SIGSTOP)
        self.halted = True
        return True

    def go_on(self, task: TaskId) -> None:
        self._tell(signal.SIGCONT)
        self.halted = False

    def _tell(self, number: int) -> None:
        for pid in self.processes:
            if pid != os.getpid():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)

    def is_halted(self, task: TaskId) -> bool:
        return self.halted

    def hold_launches(self, task: TaskId, held: bool) -> None:
        self.held.append(held)

    def hold_device_memory(self, task: TaskId, mib: int) -> None:
        self.borne.append(mib)

    def stays_halted(self, task: TaskId) -> bool:
        return False


def mover_of(
    helper: CheckpointHelper, tree: Tree, resident_mib: Callable[[TaskId], int] = lambda task: 0
) -> CheckpointMover:
    return CheckpointMover(helper, tree, lambda task: 64, resident_mib, sleep=lambda seconds: None)


def test_a_program_leaves_its_card_and_returns_with_what_it_had(
    fake_driver: FakeDriver, helper: CheckpointHelper, program: Program
) -> None:
    [card] = fake_driver.cards
    _, pointer = program("alloc", 64 * MIB)
    program("fill", pointer, 7, 1000)
    idle, tree = os.getpid(), Tree([])
    tree.processes = [idle, program.pid]  # one that never used a card takes no part
    mover = mover_of(helper, tree)
    assert mover.swap_out(TASK, 20.0).ok
    assert fake_driver.used_bytes(card) == 0
    assert mover.whereabouts(TASK, False, 60.0) is Whereabouts.SWAPPED
    assert mover.swap_in(TASK, 20.0).ok
    assert program("sum", pointer, 1000) == [0, 7000]
    assert tree.held == [True, False]
    assert tree.borne == [64, 0]  # what has left the device counts as the process's own


def test_work_that_does_not_end_leaves_the_program_where_it_was(
    fake_driver: FakeDriver, helper: CheckpointHelper, program: Program
) -> None:
    assert not helper.why_not()  # up before the clock runs
    program("launch", 60_000_000_000)
    answer = mover_of(helper, Tree([program.pid])).swap_out(TASK, 0.5)
    assert answer.outcome is MoveOutcome.TIMEOUT
    assert "it has work on the device that does not end" in answer.reason
    assert helper.state(program.pid, 60.0) is ProcessState.RUNNING


def test_a_return_without_room_waits_on_the_host(
    fake_driver: FakeDriver, helper: CheckpointHelper, program: Program
) -> None:
    program("alloc", 2048 * MIB)
    mover = mover_of(helper, Tree([program.pid]))
    assert mover.swap_out(TASK, 20.0).ok
    with Program(fake_driver.env()) as stranger:
        stranger("start")
        stranger("alloc", 3000 * MIB)
        answer = mover.swap_in(TASK, 20.0)
        assert (answer.outcome, answer.reason) == (
            MoveOutcome.TIMEOUT,
            "its device has no room for it; another task took it meanwhile",
        )
    assert mover.whereabouts(TASK, False, 60.0) is Whereabouts.SWAPPED
    assert mover.swap_in(TASK, 20.0).ok


@pytest.mark.parametrize(
    "use", [Use.MANAGED, *(pytest.param(use, marks=pytest.mark.long) for use in (Use.IPC, Use.MPS, Use.MIG))]
)
def test_what_the_driver_cannot_move_is_refused_and_goes_on(
    use: Use, fake_driver: FakeDriver, helper: CheckpointHelper, program: Program
) -> None:
    fake_driver.mark(program.pid, use)
    answer = mover_of(helper, Tree([program.pid])).swap_out(TASK, 20.0)
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
    assert mover_of(helper, Tree([program.pid])).swap_out(TASK, 20.0).outcome is MoveOutcome.TIMEOUT
    assert helper.state(program.pid, 60.0) is ProcessState.RUNNING


def test_a_program_that_the_driver_gave_up_on_is_lost(
    fake_driver: FakeDriver, helper: CheckpointHelper, program: Program
) -> None:
    fake_driver.plan("cuCheckpointProcessCheckpoint", Action.FAIL_TARGET, result=999, times=1)
    answer = mover_of(helper, Tree([program.pid])).swap_out(TASK, 20.0)
    assert answer.outcome is MoveOutcome.LOST


@pytest.mark.parametrize("error", ["NOT_PERMITTED", "NOT_SUPPORTED", "INVALID_VALUE"])
def test_a_program_of_which_the_driver_does_not_say_where_it_is_stays_and_goes_on(
    error: str, fake_driver: FakeDriver, helper: CheckpointHelper, program: Program
) -> None:
    result = {"NOT_PERMITTED": 800, "NOT_SUPPORTED": 801, "INVALID_VALUE": 1}[error]
    [card] = fake_driver.cards
    program("alloc", 64 * MIB)
    with Program(fake_driver.env()) as other:
        assert other("start") == [0]
        fake_driver.plan("cuCheckpointProcessGetState", result=result, pid=other.pid)
        tree = Tree([program.pid, other.pid])
        answer = mover_of(helper, tree).swap_out(TASK, 20.0)
        assert answer.outcome is MoveOutcome.UNSUPPORTED
        assert answer.reason == (
            f"the driver does not say whether process {other.pid} has memory on the device (CUDA_ERROR_{error})"
        )
        assert fake_driver.bytes_of(program.pid, card) >= 64 * MIB
        assert (tree.halted, tree.held[-1], tree.borne[-1]) == (False, False, 0)
    assert program("sync") == [0]


def test_a_program_that_cannot_be_asked_after_on_the_host_waits_there(
    fake_driver: FakeDriver, helper: CheckpointHelper, program: Program
) -> None:
    tree = Tree([program.pid])
    mover = mover_of(helper, tree)
    assert mover.swap_out(TASK, 20.0).ok
    fake_driver.plan("cuCheckpointProcessGetState", result=801, pid=program.pid, times=1)
    assert mover.swap_in(TASK, 20.0).outcome is MoveOutcome.TIMEOUT
    assert tree.halted
    assert mover.swap_in(TASK, 20.0).ok
    assert program("sync") == [0]


def test_what_the_driver_still_lists_on_the_device_has_not_left(
    fake_driver: FakeDriver, helper: CheckpointHelper, program: Program
) -> None:
    [card] = fake_driver.cards
    with Program(fake_driver.env()) as drawing:
        drawing("start")
        drawing("alloc", 640 * MIB)
        fake_driver.mark(drawing.pid, Use.GRAPHICS)  # of which no checkpoint knows
        tree = Tree([program.pid, drawing.pid])
        resident_mib = lambda task: sum(fake_driver.bytes_of(pid, card) for pid in tree.processes) // MIB  # noqa: E731
        answer = mover_of(helper, tree, resident_mib).swap_out(TASK, 20.0)
    assert answer.outcome is MoveOutcome.UNSUPPORTED
    assert answer.reason == "the driver moved what it could, and 640 MiB of it are on the device all the same"
    assert not tree.halted
    assert helper.state(program.pid, 60.0) is ProcessState.RUNNING
    assert program("sync") == [0]


def test_a_wrong_state_is_the_drivers_own_error(helper: CheckpointHelper, program: Program) -> None:
    with pytest.raises(DriverError, match="CUDA_ERROR_ILLEGAL_STATE"):
        helper.unlock(program.pid, 5.0)


def test_without_a_driver_the_reason_is_told() -> None:
    helper = CheckpointHelper({**os.environ, "LD_LIBRARY_PATH": ""})
    assert "driver" in helper.why_not()
