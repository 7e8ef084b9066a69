"""Ways into running tasks, as every engine gives them to the server: commands beside them, connections to programs.

Both are sockets, whatever lies behind them: what serves people and proxies knows nothing of engines, and a socket can
be handed on to another process.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Protocol

import httpcore2

from millpond.node.task.records import TaskId


class ForeignListenerError(httpcore2.ConnectError, ConnectionRefusedError):
    """A program that is not the task's listens on the port."""


class TaskUnreachedError(ConnectionError):
    """The way to a task is closed, whatever listens there."""

    def __init__(self, cause: str, remedy: str) -> None:
        super().__init__(cause)
        self.cause, self.remedy = cause, remedy


@dataclass(frozen=True, slots=True)
class ServingPlace:
    """What a task was given to serve at.

    Attributes:
        port: None: it was given none.
        access_key: what it may ask of those who connect there.
    """

    port: int | None
    access_key: str = ""


class TaskAccess(Protocol):
    """The ways into the tasks of one engine. Any thread, any event loop."""

    def serving(self, task: TaskId) -> ServingPlace | None:
        """Where a task serves; None when it runs no more. Asks nobody."""

    def cpu_s(self, task: TaskId) -> float | None:
        """Processor time that a task's processes have used; None where that is not known. May take seconds."""

    async def open_session(self, task: TaskId) -> socket.socket:
        """A place for one command beside a task: a socket with bounds of messages that does not block.

        ``node.sessions.session`` says which messages there are. Closing it ends the command.

        Raises:
            UnavailableError: the task takes no commands.
        """

    async def connect(self, task: TaskId, port: int, within_s: float | None) -> socket.socket:
        """A connection to a program of a task, which does not block.

        Raises:
            OSError: no program listens there, or not the task's (``ForeignListenerError``), or the task is over, or not
                reached (``TaskUnreachedError``).
        """
