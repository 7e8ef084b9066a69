"""A slice under watch, and what is found of a task that is beyond its own."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from millpond.model.decisions import Grant
from millpond.model.sharing import ShareClass
from millpond.node.sharing.backend import SliceUsage
from millpond.node.task.records import TaskId


class EscapeKind(StrEnum):
    """How a task got out of its slice."""

    UNGATED = "ungated"
    """A process of it is on the device, and no gate counts it."""
    OVERDRAWN = "overdrawn"
    """It has more device memory than its slice."""
    TAMPERED = "tampered"
    """The control words of its gate were changed; the agent has restored them."""
    OVERRUN = "overrun"
    """It has used the device for longer than its limit lets it."""
    UNFAIR = "unfair"
    """It has far more of a device than its share, and others that wait far less; by whose doing is not known."""
    DISTURBED = "disturbed"
    """What the slices of its device share was changed, by which of them is not known; the agent has restored it."""


@dataclass(frozen=True, slots=True)
class Escape:
    """One task beyond its slice.

    Attributes:
        text: what was seen, for people.
    """

    task: TaskId
    kind: EscapeKind
    text: str


@dataclass(frozen=True, slots=True)
class WatchedSlice:
    """A slice under watch.

    Attributes:
        pids: all processes of the task.
        usage: what its hold counts.
    """

    task: TaskId
    grant: Grant
    pids: frozenset[int]
    usage: SliceUsage
    share_class: ShareClass = ShareClass.NORMAL
