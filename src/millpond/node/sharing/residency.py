"""Carries out what the core decides about tasks on shared devices: they arrive, leave their devices, go on, end.

Each step first notes what is wanted, then does it, so that it can be finished after a crash
(``recover``). Answers come by their deadlines; nothing here runs on an engine's loop.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Final, Protocol

from millpond.model.decisions import Grant
from millpond.model.errors import MillpondError
from millpond.node.sharing.arbiter import Arbiter
from millpond.node.sharing.backend import DONE, HAS_ENDED, NOT_HALTED, MoveOutcome, MoveResult
from millpond.node.sharing.desired_state import DesiredState, DesiredStates
from millpond.node.sharing.ledger import LedgerEntry, Residence
from millpond.node.sharing.reconciler import Found, Reconciler
from millpond.node.sharing.trees import TaskTrees
from millpond.node.task.records import TaskId

FREEZE_S: Final = 15.0
LEAST_MOVE_S: Final = 30.0
_SLOWEST_MIB_PER_S: Final = 500.0
"""A tenth of what the driver was measured to move (cuda-checkpoint issue 29); a host may be busy with others' moves."""


def move_deadline_s(mib: int) -> float:
    """How long the move of so much device memory, off its device or back, may take."""
    return LEAST_MOVE_S + mib / _SLOWEST_MIB_PER_S


class DeviceAssignments(Protocol):
    """On which devices tasks belong, where that has changed since they started: remembered across restarts.

    It is written down before anything is done. Before a task's memory goes back to other devices than it came from,
    both are noted. So an agent that finds a task on its device in spite of such a note knows that it has arrived, and
    one that finds it on the host where to bring it.
    """

    def of(self, task: TaskId) -> tuple[Grant, ...]:
        """Where a task belongs; nothing for one that runs no more."""

    def move(self, task: TaskId, grants: Sequence[Grant], left: Sequence[str]) -> None:
        """It belongs elsewhere from now on.

        Args:
            left: the devices that its memory was taken off; none where it comes back to those.

        Raises:
            MillpondError: what holds it to its slice cannot follow.
            OSError: the disk is full.
        """

    def arrived(self, task: TaskId) -> None:
        """Its memory is where it belongs."""


class ResidencyManager:
    """Looks after all tasks of an engine that hold devices.

    Attributes:
        arbiter: of the same devices, with their ledger.
    """

    def __init__(
        self, arbiter: Arbiter, trees: TaskTrees, desired_states: DesiredStates, assignments: DeviceAssignments
    ) -> None:
        self.arbiter = arbiter
        self.ledger = arbiter.ledger
        self._context = arbiter.context
        self._trees = trees
        self._desired_states = desired_states
        self._assignments = assignments

    def freeze(self, task: TaskId, deadline_s: float) -> MoveResult:
        """Halt a task; its memory stays where it is."""
        self._desired_states.want(task, DesiredState.FROZEN)
        with self.arbiter.turn(task):
            self._trees.hold_launches(task, held=True)
            if self._trees.is_halted(task) or self._trees.halt(task, deadline_s):
                return DONE
            self._desired_states.want(task, DesiredState.RUNNING)
            self._trees.hold_launches(task, held=False)
        if not self._trees.pids(task):
            return HAS_ENDED
        return NOT_HALTED

    def swap_out(self, task: TaskId, deadline_s: float) -> MoveResult:
        """Move a task's memory to the host and halt it."""
        was_frozen = self._desired_states.of(task) is DesiredState.FROZEN
        self._desired_states.want(task, DesiredState.SWAPPED)
        answer = self.arbiter.swap_out(task, self._context.clock() + deadline_s)
        if not answer.ok:
            self._desired_states.want(task, DesiredState.FROZEN if was_frozen else DesiredState.RUNNING)
        return answer

    def resume(self, task: TaskId, deadline_s: float, grants: Sequence[Grant] = ()) -> MoveResult:
        """Let a task go on, from wherever it is; it stays where it is when that fails.

        Args:
            grants: on these devices of its node, not necessarily those that it left; none: on those.
        """
        if self._desired_states.of(task) is DesiredState.FROZEN:
            self._desired_states.want(task, DesiredState.RUNNING)  # else a return would halt it again
        entry = self.ledger.get(task)
        moves = entry is not None and bool(grants) and [grant.device for grant in grants] != [*entry.memory_mib]
        if moves and entry is not None and entry.residence is Residence.RESIDENT:
            return self.migrate(task, deadline_s, grants)
        assigned = self._assigned(task)
        answer = self._reassign(task, grants, deadline_s) if moves else DONE
        if answer.ok:
            answer = self.arbiter.swap_in(task, self._context.clock() + deadline_s)
        if not answer.ok:
            if moves and answer.outcome is not MoveOutcome.LOST:
                self._reassign(task, assigned, deadline_s)
            return answer
        with self.arbiter.turn(task):
            self._assignments.arrived(task)
            self._desired_states.want(task, DesiredState.RUNNING)
            self._trees.hold_launches(task, held=False)
            self._trees.go_on(task)
        return DONE

    def migrate(self, task: TaskId, deadline_s: float, grants: Sequence[Grant]) -> MoveResult:
        """Take a running task to other devices of its node; it goes on where it was when that fails.

        Begun again, it is brought to its end.

        Args:
            deadline_s: for each of its ways, out, in, and perhaps back.
        """
        entry, assigned = self.ledger.get(task), self._assigned(task)
        if entry is None:
            return HAS_ENDED
        is_there = [grant.device for grant in grants] == [*entry.memory_mib]
        if is_there and entry.residence is Residence.RESIDENT:
            return self.resume(task, deadline_s)
        answer = self.swap_out(task, deadline_s)
        if not answer.ok:
            return answer
        answer = self.resume(task, deadline_s, grants)
        if answer.ok or answer.outcome is MoveOutcome.LOST:
            return answer
        if is_there and not (back := self._reassign(task, assigned, deadline_s)).ok:
            return back
        back = self.resume(task, deadline_s)
        if back.ok or back.ended:
            return answer if back.ok else back
        reason = f"{answer.reason}; and it cannot come back to where it was: {back.reason}"
        if back.outcome is not MoveOutcome.LOST:
            self._context.on_lost(task, reason)
        return MoveResult(MoveOutcome.LOST, reason)

    def _assigned(self, task: TaskId) -> tuple[Grant, ...]:
        """What a task has of the devices that its memory is on, or was taken off."""
        grants, entry = self._assignments.of(task), self.ledger.get(task)
        if entry is None or not entry.left:
            return grants
        return tuple(replace(grant, device=device) for grant, device in zip(grants, entry.left, strict=True))

    def _reassign(self, task: TaskId, grants: Sequence[Grant], deadline_s: float) -> MoveResult:
        """Have a task whose memory is on the host come back on these devices."""
        entry, devices = self.ledger.get(task), [grant.device for grant in grants]
        if entry is None:
            return HAS_ENDED
        came_from = entry.left or tuple(entry.memory_mib)
        try:
            self._assignments.move(task, grants, () if [*came_from] == devices else came_from)
        except MillpondError as error:
            return MoveResult(MoveOutcome.UNSUPPORTED, str(error))
        return self.arbiter.reassign(task, devices, self._context.clock() + deadline_s)

    def is_frozen(self, task: TaskId) -> bool:
        """Whether a task is to be halted with its memory on the device."""
        return self._trees.stays_halted(task)

    def release(self, task: TaskId) -> None:
        """A task is over, or its start failed."""
        self.arbiter.leave(task)
        self._desired_states.want(task, DesiredState.RUNNING)

    def recover(
        self, entries: Iterable[LedgerEntry], unanswered: Callable[[TaskId], bool], deadline_s: float
    ) -> list[Found]:
        """Find out how things stand after a restart, before anything else is asked.

        Args:
            unanswered: whether a decision to suspend, resume or migrate a task has not been answered; it is repeated.
            deadline_s: for each move.
        """
        reconciler = Reconciler(self.ledger, self.arbiter.mover, self._trees, self._desired_states, deadline_s)
        found = reconciler.reconcile(entries)
        for each in found:
            if each.lost:
                self._desired_states.want(each.task, DesiredState.RUNNING)
                self._context.on_lost(each.task, each.lost)
            entry = self.ledger.get(each.task)
            if entry is not None and entry.residence is Residence.RESIDENT:
                self._assignments.arrived(each.task)
        self._settle(found, unanswered, deadline_s)
        return found

    def _settle(self, found: Collection[Found], unanswered: Callable[[TaskId], bool], deadline_s: float) -> None:
        """Who was to be on the host and is on the device leaves it, as the core counts its room as free."""
        for each in found:
            entry = self.ledger.get(each.task)
            if entry is None or each.desired is not DesiredState.SWAPPED or unanswered(each.task):
                continue
            if entry.residence is Residence.RESIDENT:
                answer = self.arbiter.swap_out(each.task, self._context.clock() + deadline_s)
                if not answer.ok and answer.outcome is not MoveOutcome.LOST:
                    self._context.on_lost(each.task, f"it holds memory that was given to others: {answer.reason}")
