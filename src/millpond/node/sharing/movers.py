"""The way off a device: the driver's for a real one that has it, the ledger alone for a pretended one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from millpond.node.sharing.backend import (
    DONE,
    HAS_ENDED,
    NOT_HALTED,
    STAYS,
    MoveOutcome,
    Mover,
    MoveResult,
    Whereabouts,
)
from millpond.node.sharing.checkpoint import CheckpointMover
from millpond.node.sharing.trees import TaskTrees
from millpond.node.task.records import TaskId

INSTANCES = "MIG"
"""As a vendor: instances that a card was cut into; the driver moves nothing off them (cuda-checkpoint issue 42)."""

_HALT_S = 15.0


class LedgerMover:
    """For tasks with pretended devices or none: halted is all they can be (``backend.Mover``).

    The ledger does the rest, which is how swapping can be tried without a card.
    """

    def __init__(self, trees: TaskTrees) -> None:
        self._trees = trees

    def swap_out(self, task: TaskId, deadline_s: float) -> MoveResult:
        """See ``backend.Mover``."""
        if not self._trees.pids(task):
            return HAS_ENDED
        if self._trees.halt(task, min(deadline_s, _HALT_S)):
            return DONE
        return NOT_HALTED

    def swap_in(self, task: TaskId, deadline_s: float, moves: Mapping[str, str] = STAYS) -> MoveResult:
        """See ``backend.Mover``."""
        if not self._trees.stays_halted(task):
            self._trees.go_on(task)
        return DONE if self._trees.pids(task) else HAS_ENDED


class VendorMover:
    """Sends each task the way of its device's vendor (``backend.Mover``).

    Args:
        vendor_of: of a task's devices; empty where it has none.
    """

    def __init__(self, trees: TaskTrees, checkpoints: CheckpointMover, vendor_of: Callable[[TaskId], str]) -> None:
        self._trees = trees
        self._checkpoints = checkpoints
        self._in_ledger = LedgerMover(trees)
        self._vendor_of = vendor_of

    def swap_out(self, task: TaskId, deadline_s: float) -> MoveResult:
        """See ``backend.Mover``."""
        return self._way(task).swap_out(task, deadline_s)

    def swap_in(self, task: TaskId, deadline_s: float, moves: Mapping[str, str] = STAYS) -> MoveResult:
        """See ``backend.Mover``."""
        return self._way(task).swap_in(task, deadline_s, moves)

    def whereabouts(self, task: TaskId, wanted_away: bool, deadline_s: float) -> Whereabouts:
        """Where a task really is.

        Args:
            wanted_away: it was to be swapped; of what a driver knows nothing of nothing else shows it.
        """
        if isinstance(self._way(task), CheckpointMover):
            return self._checkpoints.whereabouts(task, wanted_away, deadline_s)
        if not self._trees.pids(task):
            return Whereabouts.GONE
        if not self._trees.is_halted(task):
            return Whereabouts.RUNNING
        return Whereabouts.SWAPPED if wanted_away else Whereabouts.FROZEN

    def _way(self, task: TaskId) -> Mover:
        match self._vendor_of(task):
            case "nvidia":
                return self._checkpoints
            case "fake" | "":
                return self._in_ledger
            case vendor:
                return _Immovable(vendor)


class _Immovable:
    """For devices whose memory cannot be moved on this machine."""

    def __init__(self, vendor: str) -> None:
        self._answer = MoveResult(
            MoveOutcome.UNSUPPORTED,
            f"device memory of {vendor} devices cannot be moved to host memory; suspend by freezing",
        )

    def swap_out(self, task: TaskId, deadline_s: float) -> MoveResult:
        return self._answer

    def swap_in(self, task: TaskId, deadline_s: float, moves: Mapping[str, str] = STAYS) -> MoveResult:
        return DONE  # as it never left
