"""Room on devices for starts, and the return of tasks that had to make room."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from millpond.engines.local.background import Background
from millpond.engines.local.slices import Slices
from millpond.engines.local.verdicts import Refusal
from millpond.model.decisions import Placement
from millpond.model.errors import MillpondError
from millpond.node.sharing.backend import TaskEnv
from millpond.node.sharing.ledger import LedgerEntry
from millpond.node.sharing.residency import ResidencyManager
from millpond.node.task.launch import LaunchSpec
from millpond.node.task.records import TaskId

LEAST_MOVE_S: Final = 30.0
_RETURN_AGAIN_S = 5.0


@dataclass(frozen=True, slots=True)
class Room:
    """The answer to a request for room.

    Attributes:
        refusal: why there is none; nothing is held then.
        envs: what each task with slices has to be started with.
    """

    refusal: Refusal | None = None
    envs: Mapping[TaskId, TaskEnv] = field(default_factory=dict)


class Admission:
    """Lives on the engine's loop.

    Args:
        hindrance: why real devices cannot be shared here; empty when they can.
    """

    def __init__(
        self, residency: ResidencyManager, slices: Slices, background: Background, hindrance: Callable[[], str]
    ) -> None:
        self._residency = residency
        self._slices = slices
        self._background = background
        self._hindrance = hindrance
        self._is_returning = self._returns_later = False

    def admit(self, tasks: Mapping[TaskId, Placement], launch: LaunchSpec, then: Callable[[Room], None]) -> None:
        """Get room for all tasks of a start, or for none; at once if there is room and nothing to prepare, which is
        nearly always the case."""
        if not any(self._slices.concern(placed.grants) for placed in tasks.values()):
            room = self._room_for(tasks, launch, 0.0)
            if room.refusal is None:
                then(room)
                return

        def admitted(room: Room) -> None:
            then(room)
            self.let_return()  # tasks that made room for a start that failed

        self._background.run(lambda: self._room_for(tasks, launch, LEAST_MOVE_S), admitted)

    def let_return(self) -> None:
        """Bring tasks back that had to make room, as soon as there is room again."""
        if self._is_returning or not self._residency.anybody_displaced:
            return
        self._is_returning = True

        def settled(_: list[TaskId]) -> None:
            self._is_returning = False
            if self._residency.anybody_displaced and not self._returns_later:
                # A foreign process may be in the way, whose end is not announced.
                self._returns_later = True
                self._background.call_later(_RETURN_AGAIN_S, self._try_again)

        self._background.run(lambda: self._residency.bring_back(LEAST_MOVE_S), settled)

    def _try_again(self) -> None:
        self._returns_later = False
        self.let_return()

    def _room_for(self, tasks: Mapping[TaskId, Placement], launch: LaunchSpec, deadline_s: float) -> Room:
        """All of it or nothing."""
        taken: list[TaskId] = []
        envs: dict[TaskId, TaskEnv] = {}
        try:
            for task, placed in tasks.items():
                if self._residency.ledger.get(task) is None:
                    self._take_room(task, placed, launch, deadline_s)
                    taken.append(task)
                if self._slices.concern(placed.grants) and (hindrance := self._hindrance()):
                    raise _NoRoomError(hindrance)
                env = self._slices.prepare(task, placed.grants, launch)
                if env is not None:
                    envs[task] = env
        except MillpondError as error:
            for task in taken:
                self._residency.release(task)
                self._slices.release(task)
            return Room(Refusal(str(error), isinstance(error, _NoRoomError)))
        return Room(None, envs)

    def _take_room(self, task: TaskId, placed: Placement, launch: LaunchSpec, deadline_s: float) -> None:
        memory = {grant.device: grant.memory_mib for grant in placed.grants}
        entry = LedgerEntry(task, placed.node, memory, launch.share_class)
        answer = self._residency.arrive(entry, deadline_s)
        if not answer.ok:
            raise _NoRoomError(f"no room on the devices of node {placed.node}: {answer.reason}")


class _NoRoomError(MillpondError):
    """The devices are full, or another server's; another node, or a later try, may do better."""
