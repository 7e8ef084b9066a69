"""What supervisors announce of their tasks while these run: that a place is kept (``node.task.kept_place``)."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from pathlib import Path

from millpond.node.sessions.exec_sessions import short_name
from millpond.node.task.kept_place import ANNOUNCEMENTS, MOST_ANNOUNCED
from millpond.node.task.records import TaskId


class Announcements:
    """A socket in the state directory. It is there before any record is read, so that nothing is missed in between.

    Args:
        on_kept: called, on the loop, with the one that task should be looked at.

    Raises:
        OSError: no socket can be made there.
    """

    def __init__(self, state_dir: Path, loop: asyncio.AbstractEventLoop, on_kept: Callable[[TaskId], None]) -> None:
        self._loop = loop
        self._on_kept = on_kept
        path = state_dir / ANNOUNCEMENTS
        path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        with short_name(path) as name:
            self._socket.bind(name)
        path.chmod(0o600)
        loop.add_reader(self._socket, self._receive)

    def close(self) -> None:
        """Hear no more."""
        self._loop.remove_reader(self._socket)
        self._socket.close()

    def _receive(self) -> None:
        try:
            message = json.loads(self._socket.recv(MOST_ANNOUNCED))
            task = TaskId(str(message["job"]), int(message["attempt"]), int(message["task"]))
        except (BlockingIOError, ValueError, TypeError, KeyError):
            return
        self._on_kept(task)
