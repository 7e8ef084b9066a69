"""Tasks that share one device: who goes first on it, and what holds each to its part."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ShareClass(StrEnum):
    """Who goes first on one device, from the first to the last."""

    ONLINE = "online"
    """A caller waits for each answer."""
    NORMAL = "normal"
    BACKFILL = "backfill"
    """Uses what the others leave."""

    @property
    def rank(self) -> int:
        """0 goes first."""
        return _ORDER.index(self)


_ORDER = tuple(ShareClass)


class SliceHold(StrEnum):
    """What keeps a task to its part of a device."""

    UNKNOWN = ""
    """It has no part of a device, or the engine does not report it."""
    GATE = "gate"
    """The library that is loaded into its programs, and the watch beside it."""
    MPS = "mps"
    """NVIDIA's multi-process service."""
    MIG = "mig"
    """The hardware."""
    DMEM = "dmem"
    """The kernel, which bounds its memory; its time, nothing."""
    NOTHING = "nothing"
    """Its own good manners."""


class EscapePolicy(StrEnum):
    """What becomes of a task that uses a device beyond its part."""

    REPORT = "report"
    """Its owner is notified."""
    SUSPEND = "suspend"
    """It is halted until it is resumed."""
    KILL = "kill"
    """It fails."""


@dataclass(frozen=True, slots=True)
class SliceRules:
    """How a pool holds tasks to their parts of devices.

    Attributes:
        required: a task whose part nothing would enforce does not start.
        hold: what is to hold them.
        floor_milli: of a device's time, what an active higher class leaves to a lower one all the same.
    """

    escapes: EscapePolicy = EscapePolicy.REPORT
    required: bool = True
    hold: SliceHold = SliceHold.GATE
    floor_milli: int = 0


DEFAULT_SLICE_RULES = SliceRules()
GPU_SLICES = "gpu-slices"
"""The extra resource of cluster nodes whose agent gives out parts of cards; each task with a part takes one."""
VISIBLE_TO_RUNTIME, NO_CARDS = "NVIDIA_VISIBLE_DEVICES", "void"
"""The variable by which NVIDIA's container runtime knows which cards a container is given, and its value for none. Most
images for CUDA set it to ``all``."""
GIVEN_VARIABLES = frozenset({"LD_PRELOAD", "CUDA_VISIBLE_DEVICES", VISIBLE_TO_RUNTIME, "MILLPOND_GATE"})
"""Variables by which an agent gives a container its part of a card. A pod's own would stand in their place."""


@dataclass(frozen=True, slots=True)
class MigLayout:
    """What empty cards in MIG mode are to be divided into.

    Attributes:
        instances: names of profiles, such as ``3g.71gb``.
        create: it is done; otherwise only said what would be.
    """

    instances: tuple[str, ...] = ()
    create: bool = False
