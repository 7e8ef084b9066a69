"""Ways into the tasks of this machine: their supervisors, ports of the machine, and task sockets.

Each connection looks the task up anew. One to a port of the machine counts only when the task's own processes are at
its other end: the first process to bind it may listen there. ``node.sessions.task_socket`` has the other way.
"""

from __future__ import annotations

import asyncio
import functools
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from millpond.engines.local.ports import ADDRESS
from millpond.engines.task_access import ForeignListenerError, ServingPlace
from millpond.model.errors import UnavailableError
from millpond.node.host import procfs
from millpond.node.host.files import short_name
from millpond.node.host.tcp_peers import is_held_by
from millpond.node.sessions.task_socket import LONGEST_NAME, OPEN, TASK_SOCKETS, port_asked, task_socket_path
from millpond.node.task.records import RunRecord, TaskFiles, TaskId, read_record, running_records
from millpond.node.task.runner import detached_processes

_TAKEN_WITHIN_S: Final = 5.0
_AGAIN_S: Final = 0.05
_MOST_CHECKS: Final = 2


class LocalTaskAccess:
    """``engines.task_access.TaskAccess`` for processes of this machine.

    Args:
        state_dir: of the server whose tasks are meant.
    """

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        # Of their own: a user may open thousands of connections at once, and others need the threads of the event loop.
        self._checks = ThreadPoolExecutor(_MOST_CHECKS, "listeners")

    def serving(self, task: TaskId) -> ServingPlace | None:
        """Where a task serves, by its record; None when it runs no more."""
        record = read_record(TaskFiles.of(self._state_dir, task))
        return None if record is None or record.over else ServingPlace(record.port, record.access_key)

    def cpu_s(self, task: TaskId) -> float | None:
        """Processor time that everything below a task's supervisor has used, ended processes included."""
        record = read_record(TaskFiles.of(self._state_dir, task))
        if record is None or not record.alive:
            return None
        return procfs.cpu_s_below(record.supervisor_pid) + procfs.cpu_s(detached_processes(record))

    async def open_session(self, task: TaskId) -> socket.socket:
        """A connection to the supervisor of a task.

        Raises:
            UnavailableError: it takes none, as it has just ended.
        """
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.setblocking(False)
        try:
            async with asyncio.timeout(_TAKEN_WITHIN_S):
                while not self._has_reached_supervisor(connection, task):
                    await asyncio.sleep(_AGAIN_S)
        except BaseException as error:  # also a cancellation
            connection.close()
            if not isinstance(error, OSError):
                raise
            why = "its supervisor is busy, or stopped" if isinstance(error, TimeoutError) else error.strerror or error
            cause = f"task {task.task} of job {task.job} takes no commands ({why})"
            raise UnavailableError(cause, "it may have ended just now; start it anew if it runs still") from error
        return connection

    async def connect(self, task: TaskId, port: int, within_s: float | None) -> socket.socket:
        """A connection to a program of a task.

        No thread waits for the program meanwhile: it may take its time, for any number of connections.

        Raises:
            OSError: no program listens there, or not the task's (``ForeignListenerError``).
        """
        record, loop = self._record(task), asyncio.get_running_loop()
        by_task_socket = bool(record.task_socket) and (record.private or port == record.port)
        connection = socket.socket(socket.AF_UNIX if by_task_socket else socket.AF_INET)
        connection.setblocking(False)
        try:
            async with asyncio.timeout(within_s):
                await loop.sock_connect(connection, self._name_of(record) if by_task_socket else (ADDRESS, port))
                if by_task_socket:
                    await loop.sock_sendall(connection, port_asked(0 if port == record.port else port))
                    if await loop.sock_recv(connection, len(OPEN)) != OPEN:
                        raise ConnectionRefusedError("no program listens behind the task socket")
            if not by_task_socket:  # out of the time: that many checks wait here says nothing of the program
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
                await loop.run_in_executor(self._checks, self._require_own, connection, record)
        except BaseException:  # also a cancellation
            connection.close()
            raise
        return connection

    def _record(self, task: TaskId) -> RunRecord:
        record = read_record(TaskFiles.of(self._state_dir, task))
        if record is None or not record.alive:
            raise ConnectionRefusedError("the task runs no more")
        return record

    def _has_reached_supervisor(self, connection: socket.socket, task: TaskId) -> bool:
        """Connect it, unless too many others wait there."""
        try:
            with short_name(TaskFiles.of(self._state_dir, task).socket) as name:
                connection.connect(name)
        except BlockingIOError:
            return False
        return True

    def _require_own(self, connection: socket.socket, record: RunRecord) -> None:
        """Check that a connection to a port of the machine leads to a task's own program.

        Raises:
            ForeignListenerError: it does not.
            OSError: the kernel does not report it.
        """
        if not is_held_by(connection, self._processes_of(record)):
            port = connection.getpeername()[1]
            raise ForeignListenerError(f"a program that is not the job's own listens on port {port}")

    def _processes_of(self, record: RunRecord) -> list[int]:
        """The living processes of a task.

        Those that a daemon started are known by a variable, which others can set too.
        """
        own = procfs.descendants(record.supervisor_pid)
        if record.detached:
            supervisors = {each.supervisor_pid for each in running_records(self._state_dir)}
            own += [pid for pid in detached_processes(record) if procfs.first_above(pid, supervisors) is None]
        return own

    def _name_of(self, record: RunRecord) -> str:
        """The socket of a task, by a name that the kernel takes however deep the state directory lies."""
        path = task_socket_path(self._state_dir, record.task_socket)
        if len(os.fsencode(path)) <= LONGEST_NAME:
            return str(path)
        return f"/proc/self/fd/{_opened(self._state_dir / TASK_SOCKETS)}/{path.name}"


@functools.cache
def _opened(folder: Path) -> int:
    """The one folder of this server's task sockets, for as long as it runs."""
    return os.open(folder, os.O_PATH | os.O_DIRECTORY)
