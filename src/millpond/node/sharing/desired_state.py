"""What the core wants of tasks that are not to run, written down before anything is done about it.

A file for each task holds it; none means that the task is to run. It says nothing of what is: that is looked up
(``reconciler``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

from millpond.node.host.files import read_json, write_json
from millpond.node.task.records import TaskId


class DesiredState(StrEnum):
    """Where a task is meant to be."""

    RUNNING = "running"
    FROZEN = "frozen"
    SWAPPED = "swapped"


class DesiredStates:
    """Remembered across restarts, as files.

    Args:
        path_of: where the file of a task is, in a folder that exists while the task does.
    """

    def __init__(self, path_of: Callable[[TaskId], Path]) -> None:
        self._path = path_of

    def of(self, task: TaskId) -> DesiredState:
        """What is wanted of a task."""
        plain = read_json(self._path(task)) or {}
        try:
            return DesiredState(plain.get("desired", DesiredState.RUNNING))
        except ValueError:  # it was not written here
            return DesiredState.RUNNING

    def want(self, task: TaskId, desired: DesiredState) -> None:
        """Something else is wanted from now on.

        Raises:
            OSError: the disk is full.
        """
        if desired is DesiredState.RUNNING:
            with contextlib.suppress(IsADirectoryError):  # a task put it there, and it says nothing
                self._path(task).unlink(missing_ok=True)
        else:
            write_json(self._path(task), {"desired": desired.value})
