"""What every way of sharing a device answers.

There are two kinds. A *hold* (``gate``, ``mps``, ``mig``) is there from a task's start and keeps it to its part. A
*mover* (``checkpoint``, or the books alone) takes a running task off its device and back. One interface for both would
have half of its methods answer "unsupported" in every class.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, TypeAlias

from millpond.model.decisions import Grant
from millpond.model.errors import InvalidInputError
from millpond.model.hardware.devices import Device
from millpond.model.sharing import ShareClass, SliceHold
from millpond.node.sandbox.sandbox import Mount
from millpond.node.task.records import TaskId

_PRELOAD = "LD_PRELOAD"


class MoveOutcome(StrEnum):
    """How taking a task off its device, or back, went."""

    OK = "ok"
    TIMEOUT = "timeout"
    """Not in time; the task is as it was before."""
    UNSUPPORTED = "unsupported"
    """It can never be done to this task; it is as it was before."""
    LOST = "lost"
    """The task cannot go on and has to be ended."""


@dataclass(frozen=True, slots=True)
class MoveResult:
    """An outcome, and for people why it is not ``OK``.

    Attributes:
        ended: lost because the task had ended by itself; its watcher reports how.
        unmappable: the driver refuses to bring anything back on other devices than it was taken off.
    """

    outcome: MoveOutcome
    reason: str = ""
    ended: bool = False
    unmappable: bool = False

    @property
    def ok(self) -> bool:
        """Whether it was done."""
        return self.outcome is MoveOutcome.OK

    @property
    def is_lost(self) -> bool:
        """Whether the move is why the task cannot go on."""
        return self.outcome is MoveOutcome.LOST and not self.ended


DONE = MoveResult(MoveOutcome.OK)
HAS_ENDED = MoveResult(MoveOutcome.LOST, "it has ended", ended=True)
NOT_HALTED = MoveResult(MoveOutcome.TIMEOUT, "its processes could not be halted in time")


@dataclass(frozen=True, slots=True)
class TaskEnv:
    """What a task must be started with, so that its slices hold.

    Attributes:
        hold: what keeps it to them.
        reason: why nothing does; empty when something does.
        preload: a library to be loaded into its programs before any that it names itself; empty: none.
        mounts: what must be found in its sandbox or container.
        device_memory_mib: what its control group bounds, by the kernel's names for the memory of devices.
    """

    hold: SliceHold
    reason: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    preload: str = ""
    mounts: tuple[Mount, ...] = ()
    device_memory_mib: Mapping[str, int] = field(default_factory=dict)

    def applied_to(self, env: Mapping[str, str]) -> dict[str, str]:
        """A task's variables with these: the one place where it is decided what is loaded before what."""
        own = {_PRELOAD: os.pathsep.join(filter(None, (self.preload, env.get(_PRELOAD, ""))))} if self.preload else {}
        return {**env, **self.env, **own}


UNSLICED = TaskEnv(SliceHold.UNKNOWN)
"""Of a task that has no slices."""


@dataclass(frozen=True, slots=True)
class SliceUsage:
    """What a slice uses, as its hold counts it; None is unknown.

    Attributes:
        pids: processes of the task that the hold knows of.
        used_bytes: of device memory.
        busy_ns: device time so far.
        denials: requests for memory that were refused.
        waited_ns: for which its launches were held back so far.
        tampered: words were changed that only the agent may change.
        disturbed: so were words that all slices of its device share, by one of them.
    """

    pids: frozenset[int] = frozenset()
    used_bytes: int | None = None
    busy_ns: int | None = None
    denials: int | None = None
    waited_ns: int | None = None
    tampered: bool = False
    disturbed: bool = False


Owner: TypeAlias = tuple[int, int]
"""Numbers of a user and a group."""


@dataclass(frozen=True, slots=True)
class EnforcementRequest:
    """What a task is to be held to.

    Attributes:
        folder: its own, where files may lie; made if missing.
        grants: its parts of devices.
        owner: whom it runs as; None: as we do.
        required: its programs must not use a device where what holds them is missing.
        swappable: it must stay one whose memory can be moved to the host.
        contained: it runs in a container.
        floor_milli: of a device's time, what an active higher class leaves it all the same.
    """

    task: TaskId
    folder: Path
    grants: Sequence[Grant]
    share_class: ShareClass = ShareClass.NORMAL
    owner: Owner | None = None
    required: bool = True
    swappable: bool = False
    contained: bool = False
    floor_milli: int = 0


def require_room(grant: Grant, device: Device) -> None:
    """Whether anything could run in a part of a device.

    Raises:
        InvalidInputError: nothing could.
    """
    if 0 < grant.memory_mib <= device.context_mib:
        raise InvalidInputError(
            f"nothing can run in a slice of {grant.memory_mib} MiB, as a program's context alone is counted as "
            f"{device.context_mib} MiB",
            "ask for more device memory",
        )


class SliceEnforcer(Protocol):
    """Keeps tasks to their slices."""

    kind: SliceHold

    def why_not(self) -> str:
        """Why it does not work on this machine, in one clause; empty when it does. May take seconds the first time."""

    def prepare(self, request: EnforcementRequest) -> TaskEnv:
        """Make what the task needs before it starts. Made again for the same task, it is the same.

        Raises:
            MillpondError: it cannot hold these slices.
            OSError: the machine fails to make it.
        """

    def adopt(self, task: TaskId, folder: Path, devices: Sequence[str]) -> bool:
        """Go on with a task that an earlier agent prepared; False when nothing is left of that."""

    def hold_launches(self, task: TaskId, held: bool) -> None:
        """Keep the task from giving the device more to do, or let it; nothing happens where it cannot, and to a task
        that it does not know."""
        return

    def usage(self, task: TaskId) -> SliceUsage | None:
        """What the task uses; None when this hold knows nothing of it."""
        return None

    def match_driver(self, task: TaskId, driver_mib: int, usage: SliceUsage) -> None:
        """Mind what the driver says that the task has of its device, beyond what is counted.

        Args:
            usage: as it was right before the driver was asked.
        """
        return

    def processes(self) -> list[int]:
        """Processes of its own that the driver may name as users of a device."""
        return []

    def fault_domain(self, task: TaskId) -> frozenset[TaskId]:
        """The tasks that a fatal fault of this one ends, too."""
        return frozenset()

    def move(self, task: TaskId, devices: Sequence[str]) -> None:
        """Hold the task to the same parts of these devices from now on; it is halted, and nothing happens if it is
        not known.

        Raises:
            MillpondError: it cannot.
        """

    def release(self, task: TaskId) -> None:
        """The task is over."""


STAYS: Mapping[str, str] = MappingProxyType({})
"""No device but the own."""


class Mover(Protocol):
    """Takes tasks off their devices and back. Every call ends by its deadline; each can be repeated."""

    def swap_out(self, task: TaskId, deadline_s: float) -> MoveResult:
        """Free the device memory of a task and halt it; what it held is in host memory then."""

    def swap_in(self, task: TaskId, deadline_s: float, moves: Mapping[str, str] = STAYS) -> MoveResult:
        """The other way round.

        Args:
            moves: what was taken off these devices comes back on those, by UUID.
        """


class Whereabouts(StrEnum):
    """Where a task is found to be, whatever anybody believed."""

    RUNNING = "running"
    FROZEN = "frozen"
    """Halted, with its memory on the device."""
    HALFWAY = "halfway"
    """On its way between device and host."""
    SWAPPED = "swapped"
    """No device memory."""
    LOST = "lost"
    """It can neither go on nor come back."""
    GONE = "gone"
    """It runs no more."""
