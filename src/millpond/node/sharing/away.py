"""What the core wants of tasks that are not to run, written down before anything is done about it.

A file beside the task's record (``task-0.away``) holds the wish; none means that the task is to run. It says nothing of
what is: that is looked up (``reconciler``).
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Protocol

from millpond.node.files import read_json, write_json
from millpond.node.records import TaskFiles, TaskId


class Wish(StrEnum):
    """Where a task is meant to be."""

    RUNNING = "running"
    FROZEN = "frozen"
    SWAPPED = "swapped"


class Wishes(Protocol):
    """Remembers across restarts."""

    def of(self, task: TaskId) -> Wish:
        """What is wanted of a task."""

    def want(self, task: TaskId, wish: Wish) -> None:
        """Something else is wanted from now on."""


class AwayFiles:
    """Wishes as files of a state directory."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir

    def of(self, task: TaskId) -> Wish:
        """See ``Wishes``."""
        plain = read_json(self._path(task))
        return Wish.RUNNING if plain is None else Wish(plain["wish"])

    def want(self, task: TaskId, wish: Wish) -> None:
        """See ``Wishes``.

        Raises:
            OSError: the disk is full.
        """
        if wish is Wish.RUNNING:
            self._path(task).unlink(missing_ok=True)
        else:
            write_json(self._path(task), {"wish": wish.value})

    def _path(self, task: TaskId) -> Path:
        return TaskFiles.of(self._state_dir, task).record.with_suffix(".away")
