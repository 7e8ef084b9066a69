"""Ways into tasks that run in several clusters."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final

from millpond.engines.task_access import ServingPlace, TaskAccess
from millpond.model.errors import UnavailableError
from millpond.node.task.records import TaskId


class NoAccess:
    """The ways into tasks that cannot be reached.

    Args:
        why: in words.
    """

    def __init__(self, why: str) -> None:
        self._why: Final = why

    def serving(self, task: TaskId) -> ServingPlace | None:
        """Where a task serves: nowhere."""
        return None

    def cpu_s(self, task: TaskId) -> float | None:
        """Processor time that a task's processes have used: not known."""
        return None

    async def open_session(self, task: TaskId) -> socket.socket:
        """A place for one command beside a task.

        Raises:
            UnavailableError: always.
        """
        raise UnavailableError(self._why, "see `pond nodes`, and try again")

    async def connect(self, task: TaskId, port: int, within_s: float | None) -> socket.socket:
        """A connection to a program of a task.

        Raises:
            OSError: always.
        """
        raise ConnectionRefusedError(self._why)


_OVER: Final = NoAccess("the task is over")


class RoutedAccess:
    """The ways into tasks by the cluster that they run in.

    Args:
        access_to: the ways into the tasks of a job; None: nothing of it runs.
    """

    def __init__(self, access_to: Callable[[str], TaskAccess | None]) -> None:
        self._access_to = access_to

    def serving(self, task: TaskId) -> ServingPlace | None:
        """Where a task serves; None when it runs no more."""
        return self._of(task).serving(task)

    def cpu_s(self, task: TaskId) -> float | None:
        """Processor time that a task's processes have used; None where that is not known."""
        return self._of(task).cpu_s(task)

    async def open_session(self, task: TaskId) -> socket.socket:
        """A place for one command beside a task.

        Raises:
            UnavailableError: the task takes no commands.
        """
        return await self._of(task).open_session(task)

    async def connect(self, task: TaskId, port: int, within_s: float | None) -> socket.socket:
        """A connection to a program of a task.

        Raises:
            OSError: no program listens there, or the task is over.
        """
        return await self._of(task).connect(task, port, within_s)

    def _of(self, task: TaskId) -> TaskAccess:
        return self._access_to(task.job) or _OVER
