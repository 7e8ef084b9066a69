"""On which devices tasks belong, where that has changed since they started: written down before anything is done.

Before a task's memory goes back to other devices than it came from, both are noted. So an agent that finds a task on
its device in spite of such a note knows that it has arrived, and one that finds it on the host where to bring it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from millpond.model.decisions import Grant
from millpond.node.task.records import TaskId


class DeviceAssignments(Protocol):
    """Remembers across restarts."""

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
