"""What the scheduler asks of an engine. Each decision has an id and counts as done until the engine answers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from millpond.model.contents import Content
from millpond.model.hardware.devices import Device
from millpond.model.reasons import Cause
from millpond.model.resources import CARD_MILLI


@dataclass(frozen=True, slots=True)
class Grant:
    """What a task may use of one device.

    Attributes:
        compute_milli: guaranteed compute.
        limit_milli: the most it may use while others are idle.
        memory_mib: device memory; 0 when the device's capacity is unknown.
    """

    device: str
    compute_milli: int
    limit_milli: int
    memory_mib: int

    def is_part_of(self, device: Device) -> bool:
        """Whether this is less than the whole device."""
        all_memory = not device.memory_mib or not self.memory_mib or self.memory_mib >= device.memory_mib
        return self.compute_milli < CARD_MILLI or not all_memory


@dataclass(frozen=True, slots=True)
class Placement:
    """One task on one node.

    Attributes:
        task: the task's number within its job, from 0; also its rank.
        role: name of its role.
    """

    task: int
    role: str
    node: str
    grants: tuple[Grant, ...] = ()


class SuspendMode(StrEnum):
    """How work leaves a card without ending."""

    FREEZE = "freeze"
    """Device memory stays on the device."""
    SWAP = "swap"
    """Device memory moves to host memory."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Base of all decisions.

    Attributes:
        id: rises by one with each decision of a scheduler.
        job: the job it is about.
        attempt: the job's run, counted from 1.
        cause: why, in one word.
    """

    id: int
    job: str
    attempt: int
    cause: Cause


@dataclass(frozen=True, slots=True)
class Start(Decision):
    """Start all these tasks together.

    Attributes:
        joins: true when they join tasks of the same attempt that run already (growth, a restarted task).
        load_milli: what others are expected to use of the busiest card that they get; None: their placement does not
            count load, or they get none.
    """

    placements: tuple[Placement, ...] = ()
    joins: bool = False
    load_milli: int | None = None


@dataclass(frozen=True, slots=True)
class Stop(Decision):
    """End tasks after notice and grace.

    Attributes:
        tasks: which; empty means all that run.
        grace_s: time from notice to the end by force.
        for_job: the job that gets the room, when there is one.
    """

    tasks: tuple[int, ...] = ()
    grace_s: float = 30.0
    for_job: str = ""


@dataclass(frozen=True, slots=True)
class Suspend(Decision):
    """Take all tasks off their devices without ending them."""

    mode: SuspendMode = SuspendMode.FREEZE
    for_job: str = ""


@dataclass(frozen=True, slots=True)
class Resume(Decision):
    """Let suspended tasks go on.

    Attributes:
        placement: where the only task of the job goes on, other devices of its node perhaps; None: where it was.
    """

    placement: Placement | None = None


@dataclass(frozen=True, slots=True)
class Migrate(Decision):
    """Move the only task of a job, as it runs, to other devices of its node. Until the answer it holds both.

    Attributes:
        restarts: if the engine refuses, it is ended and starts anew there.
    """

    placement: Placement
    restarts: bool = False


@dataclass(frozen=True, slots=True)
class CapPower(Decision):
    """Let each card of a job draw so much at the most, until the job leaves it or another cap is decided.

    Attributes:
        cap_w: of each card; 0: as before the job had it.
        slowdown, saved: what was measured at that cap: by which part a step takes longer, and needs less energy; 0 of
            one that is tried.
    """

    cap_w: float
    slowdown: float = 0.0
    saved: float = 0.0


@dataclass(frozen=True, slots=True)
class Prefetch(Decision):
    """Fetch what a waiting job needs to a node that is kept for it. It is answered once that is there, or will not be.

    Attributes:
        attempt: of the run that it is for.
        node: its name.
        contents: what the node lacks; none: nothing is to be fetched there for the job any more.
    """

    node: str = ""
    contents: tuple[Content, ...] = ()
