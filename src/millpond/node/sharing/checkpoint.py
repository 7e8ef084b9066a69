"""Moving a task's device memory to the host and back with the driver's own checkpoints (``cuCheckpointProcess*``).

The driver moves one process at a time: running - lock -> locked - checkpoint -> checkpointed - restore -> locked -
unlock -> running. A task is a tree of processes, some of which never use a device; those are let be. A process counts
as one of these only where the driver says that it has not initialised CUDA: where it does not say, nothing is moved.
All processes are locked before the first is checkpointed, and halted only when all are: a thread of the driver within
the target does the work, so a halted process can neither leave nor return, nor can the driver say where it is: asked
about one, driver 580 does not answer until it goes on. A task has left when the driver's list of processes shows no
memory of it either. Whatever fails is undone, and where it cannot be, the task is lost.

Source: CUDA driver API, section "CUDA Checkpointing"; CRIU, plugins/cuda/README.md, for the order of halting.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from millpond.model.amounts import memory_text
from millpond.model.hardware.telemetry import DeviceSample
from millpond.node.sharing.backend import DONE, HAS_ENDED, NOT_HALTED, STAYS, MoveOutcome, MoveResult, Whereabouts
from millpond.node.sharing.helper import (
    CheckpointHelper,
    DriverError,
    DriverHungError,
    DriverMissingError,
    ProcessState,
)
from millpond.node.sharing.trees import TaskTrees
from millpond.node.task.records import TaskId

_PASSES = 8
"""Processes may appear while others leave; a task that starts them faster than this is not moved."""
_LOOKS = 2
_LOOK_S = 5.0
_LEAST_S = 1.0
"""What halting gets, even where the deadline is over."""
_UNDOING_S = 15.0
_SLOWEST_MIB_PER_S = 500.0
"""Undoing has a time of its own, as where it does not succeed the task is lost: on a busy machine looking at a process
takes its time, and memory comes back as slowly as it left."""


_UNSUPPORTED = ("CUDA_ERROR_NOT_SUPPORTED", "CUDA_ERROR_NOT_PERMITTED")
_NO_MAP = ("CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_INVALID_DEVICE", *_UNSUPPORTED)
_NO_ROOM = "CUDA_ERROR_OUT_OF_MEMORY"
_NOT_READY = "CUDA_ERROR_NOT_READY"

_CONFIRMING_LOOKS = 40
_CONFIRM_AGAIN_S = 0.05
"""Drivers may keep who has left in their list for a moment."""


def listed_mib(samples: Iterable[DeviceSample], pids: Collection[int]) -> int:
    """What processes have of devices by their driver's list of processes; 0 where that does not tell."""
    rows = (process for sample in samples for process in sample.processes or () if process.pid in pids)
    return sum(process.memory_mib or 0 for process in rows)


class _GaveUpError(Exception):
    """Leaves a sequence of steps with the answer."""

    def __init__(self, answer: MoveResult) -> None:
        super().__init__(answer.reason)
        self.answer = answer


@dataclass(slots=True)
class _Move:
    """One move of one task.

    Attributes:
        touched: processes of which the driver was asked more than where they are.
    """

    task: TaskId
    deadline: float
    touched: set[int] = field(default_factory=set)


class CheckpointMover:
    """Moves tasks by the driver (``backend.Mover``).

    Args:
        memory_mib: what a task may have on its devices.
        resident_mib: what its processes have on them by the driver's list of processes; 0 where that does not tell.
        clock: seconds, monotonic.
        sleep: by that clock.
    """

    def __init__(
        self,
        driver: CheckpointHelper,
        trees: TaskTrees,
        memory_mib: Callable[[TaskId], int],
        resident_mib: Callable[[TaskId], int],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._driver = driver
        self._trees = trees
        self._memory_mib = memory_mib
        self._resident_mib = resident_mib
        self._clock = clock
        self._sleep = sleep

    def swap_out(self, task: TaskId, deadline_s: float) -> MoveResult:
        """See ``backend.Mover``."""
        move = _Move(task, self._clock() + deadline_s)
        self._trees.hold_device_memory(task, self._memory_mib(task))
        self._trees.go_on(task)
        self._trees.hold_launches(task, held=True)
        try:
            for _ in range(_PASSES):
                looked_at = self._take_out(move)
                if not self._trees.halt(task, max(move.deadline - self._clock(), _LEAST_S)):
                    raise _GaveUpError(NOT_HALTED)
                if looked_at.issuperset(self._trees.pids(task)):
                    self._confirm_departure(task)
                    return DONE
                self._trees.go_on(task)  # a process appeared meanwhile, and takes part
            raise _GaveUpError(MoveResult(MoveOutcome.UNSUPPORTED, "it starts processes faster than they can be moved"))
        except _GaveUpError as error:
            return self._undone(move, error.answer)
        except DriverMissingError as error:
            return self._undone(move, MoveResult(MoveOutcome.UNSUPPORTED, str(error)))

    def swap_in(self, task: TaskId, deadline_s: float, moves: Mapping[str, str] = STAYS) -> MoveResult:
        """See ``backend.Mover``."""
        move = _Move(task, self._clock() + deadline_s)
        self._trees.go_on(task)
        try:
            self._put_back(move, moves)
        except _GaveUpError as error:
            return self._out_again(move, error.answer, moves)
        except DriverMissingError as error:
            return MoveResult(MoveOutcome.LOST, f"its memory cannot be brought back: {error}")
        return self._goes_on(task)

    def whereabouts(self, task: TaskId, wanted_away: bool, deadline_s: float) -> Whereabouts:
        """Where a task is, by the driver and by its processes; what is halted goes on while the driver is asked.

        Args:
            wanted_away: it was to be swapped: halted, and without use of a device, it is away.
        """
        deadline = self._clock() + deadline_s
        if not self._trees.pids(task):
            return Whereabouts.GONE
        was_halted = self._trees.is_halted(task)
        self._trees.go_on(task)
        try:
            states = set(self._states(task, self._trees.pids(task), deadline).values())
        except (_GaveUpError, DriverMissingError):
            states = {ProcessState.RUNNING}  # it cannot have been swapped by a driver that is not there
        if states == {ProcessState.CHECKPOINTED}:
            is_away = was_halted or wanted_away  # else it is to return, and was let go on for that
        else:
            is_away = not states and was_halted and wanted_away
        if (is_away or was_halted) and not self._trees.halt(task, _UNDOING_S):
            return Whereabouts.HALFWAY if is_away else Whereabouts.RUNNING
        if is_away:
            return Whereabouts.SWAPPED
        if ProcessState.FAILED in states:
            return Whereabouts.LOST
        if states - {ProcessState.RUNNING}:
            return Whereabouts.HALFWAY
        return Whereabouts.FROZEN if was_halted else Whereabouts.RUNNING

    # ---- steps ------------------------------------------------------------------------------------------------------

    def _take_out(self, move: _Move) -> set[int]:
        """Takes part: all processes there are; those that appear later are not among what it returns."""
        pids = set(self._trees.pids(move.task))
        for pid in self._in_state(move, ProcessState.RUNNING, among=pids):
            self._step("lock", pid, move, ProcessState.LOCKED)
        for pid in self._in_state(move, ProcessState.LOCKED, among=pids):
            self._step("checkpoint", pid, move, ProcessState.CHECKPOINTED)
        return pids

    def _put_back(self, move: _Move, moves: Mapping[str, str] = STAYS, among: Collection[int] | None = None) -> None:
        for pid in self._in_state(move, ProcessState.CHECKPOINTED, among=among):
            self._step("restore", pid, move, ProcessState.LOCKED, moves)
        for pid in self._in_state(move, ProcessState.LOCKED, among=among):
            self._step("unlock", pid, move, ProcessState.RUNNING)

    def _confirm_departure(self, task: TaskId) -> None:
        """Its memory is off its devices by the driver's list of processes too.

        Raises:
            _GaveUpError: it is not.
        """
        for look in range(_CONFIRMING_LOOKS):
            if look:
                self._sleep(_CONFIRM_AGAIN_S)
            if not (mib := self._resident_mib(task)):
                return
        reason = f"the driver moved what it could, and {memory_text(mib)} of it are on the device all the same"
        raise _GaveUpError(MoveResult(MoveOutcome.UNSUPPORTED, reason))

    def _step(
        self, name: str, pid: int, move: _Move, then: ProcessState, moves: Mapping[str, str] | None = None
    ) -> None:
        """One call about one process.

        Args:
            moves: of a restore.

        Raises:
            _GaveUpError: it did not do what it should, and the process has not ended.
        """
        left = move.deadline - self._clock()
        if left <= 0:
            raise _GaveUpError(
                MoveResult(MoveOutcome.TIMEOUT, f"the deadline passed before the driver could {name} it")
            )
        move.touched.add(pid)
        try:
            getattr(self._driver, name)(pid, left, *([] if moves is None else [moves]))
        except DriverError as error:
            self._judge(name, move.task, pid, error.name, bool(moves))
        except DriverHungError:
            state = self._state(move.task, pid)
            if state is None or state is then:
                return  # it has ended, or the driver did it and failed to say so
            outcome = MoveOutcome.LOST if state in (ProcessState.FAILED, ProcessState.MOVING) else MoveOutcome.TIMEOUT
            raise _GaveUpError(MoveResult(outcome, f"the driver hung when asked to {name} it")) from None

    def _judge(self, name: str, task: TaskId, pid: int, error: str, elsewhere: bool) -> None:
        state = self._state(task, pid)
        if state is None:
            return  # it ended meanwhile
        if state is ProcessState.FAILED:
            raise _GaveUpError(MoveResult(MoveOutcome.LOST, f"the driver failed to {name} it ({error})"))
        if elsewhere and error.startswith(_NO_MAP):
            why = f"the driver does not bring it back on another device ({error})"
            raise _GaveUpError(MoveResult(MoveOutcome.UNSUPPORTED, why, unmappable=True))
        if error in _UNSUPPORTED:
            why = "managed memory, memory shared between processes, MPS and MIG are reasons"
            raise _GaveUpError(
                MoveResult(MoveOutcome.UNSUPPORTED, f"the driver does not {name} such a process ({error}); {why}")
            )
        if error == _NO_ROOM and name == "checkpoint":
            why = "host memory is short, or its device is divided (MIG)"
            raise _GaveUpError(MoveResult(MoveOutcome.UNSUPPORTED, f"the driver cannot {name} it ({error}); {why}"))
        if error == _NO_ROOM and name == "restore":
            raise _GaveUpError(
                MoveResult(MoveOutcome.TIMEOUT, "its device has no room for it; another task took it meanwhile")
            )
        slow = "; it has work on the device that does not end" if error == _NOT_READY else ""
        raise _GaveUpError(MoveResult(MoveOutcome.TIMEOUT, f"the driver would not {name} it ({error}){slow}"))

    def _undone(self, move: _Move, answer: MoveResult) -> MoveResult:
        """What a swap that failed comes to: the task goes on where it was, or is lost."""
        task = move.task
        if answer.outcome is MoveOutcome.LOST:
            return answer
        if not self._trees.pids(task):
            return HAS_ENDED
        self._trees.go_on(task)
        try:
            self._put_back(_Move(task, self._undone_by(task)), among=move.touched)
        except _GaveUpError as error:
            return MoveResult(MoveOutcome.LOST, f"{answer.reason}; and it cannot go on: {error.answer.reason}")
        except DriverMissingError:
            pass  # hence nothing was moved
        back = self._goes_on(task)
        return answer if back.ok else back

    def _out_again(self, move: _Move, answer: MoveResult, moves: Mapping[str, str]) -> MoveResult:
        """What a return that failed comes to: the task waits on the host as before, or is lost.

        A task that would be taken off two sets of devices is lost, as no map leads back from both.
        """
        task = move.task
        if answer.outcome is MoveOutcome.LOST:
            return answer
        if not self._trees.pids(task):
            return HAS_ENDED
        try:
            again = _Move(task, self._undone_by(task))
            if moves and move.touched and self._in_state(again, ProcessState.LOCKED, ProcessState.RUNNING):
                return MoveResult(MoveOutcome.LOST, f"{answer.reason}; and a part of it is on other devices already")
            if move.touched:
                self._take_out(again)
            if self._trees.halt(task, _UNDOING_S):
                return replace(answer, outcome=answer.outcome if moves else MoveOutcome.TIMEOUT)
        except _GaveUpError as error:
            return MoveResult(MoveOutcome.LOST, f"{answer.reason}; and it cannot leave again: {error.answer.reason}")
        return MoveResult(MoveOutcome.LOST, f"{answer.reason}; and its processes cannot be halted again")

    def _undone_by(self, task: TaskId) -> float:
        return self._clock() + _UNDOING_S + self._memory_mib(task) / _SLOWEST_MIB_PER_S

    def _goes_on(self, task: TaskId) -> MoveResult:
        self._trees.hold_device_memory(task, 0)
        if self._trees.stays_halted(task):
            if not self._trees.halt(task, _UNDOING_S):
                return MoveResult(MoveOutcome.LOST, "its processes cannot be halted again")
            return DONE
        self._trees.hold_launches(task, held=False)
        return DONE if self._trees.pids(task) else HAS_ENDED

    def _in_state(self, move: _Move, *wanted: ProcessState, among: Collection[int] | None = None) -> list[int]:
        """Its processes in some state; of those ``among`` them, where these alone matter."""
        pids = self._trees.pids(move.task)
        states = self._states(move.task, [pid for pid in pids if among is None or pid in among], move.deadline)
        if ProcessState.FAILED in states.values():
            raise _GaveUpError(MoveResult(MoveOutcome.LOST, "the driver gave up on one of its processes"))
        return [pid for pid, state in states.items() if state in wanted]

    def _states(self, task: TaskId, pids: Iterable[int], deadline: float) -> dict[int, ProcessState]:
        """Of those that use a device."""
        if self._clock() >= deadline:
            raise _GaveUpError(MoveResult(MoveOutcome.TIMEOUT, "the deadline passed"))
        return {pid: state for pid in pids if (state := self._state(task, pid)) is not None}

    def _state(self, task: TaskId, pid: int) -> ProcessState | None:
        """Where a process is; None: it uses no device, or has ended.

        Looking is quick, so it has a time of its own; a driver that cannot even do that has lost the process.
        """
        for _ in range(_LOOKS):
            try:
                return self._driver.state(pid, _LOOK_S)
            except DriverError as error:
                if pid not in self._trees.pids(task):
                    return None
                why = f"the driver does not say whether process {pid} has memory on the device ({error.name})"
                raise _GaveUpError(MoveResult(MoveOutcome.UNSUPPORTED, why)) from None
            except DriverHungError:
                continue  # the helper is replaced
        raise _GaveUpError(MoveResult(MoveOutcome.LOST, "the driver does not even say where its memory is"))
