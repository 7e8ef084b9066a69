"""Ways to the programs of tasks: at ports of this machine, or by task sockets (``node.sessions.task_socket``).

A run of a task is addressed like a machine, by a host and a port; no resolver of names is ever asked about its host.
Each connection looks the task up anew. One to a port of the machine counts only when the task's own processes are at
its other end: the first process to bind it may listen there.
"""

from __future__ import annotations

import asyncio
import functools
import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpcore2

from millpond.model.errors import InvalidInputError
from millpond.node.host import procfs
from millpond.node.host.tcp_peers import is_held_by
from millpond.node.sandbox import namespaces
from millpond.node.sessions.task_socket import (
    LONGEST_NAME,
    OPEN,
    PROGRAM_SOCKET,
    TASK_SOCKETS,
    port_asked,
    program_folder,
    task_socket_name,
    task_socket_path,
)
from millpond.node.task.records import RunRecord, TaskFiles, TaskId, read_record, running_records
from millpond.node.task.runner import detached_processes
from millpond.specs.job.job_file import JobFile

ADDRESS: Final = "127.0.0.1"
UNREACHED: Final = (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException)
"""What a pool raises when a program does not answer as one does."""


class ForeignListenerError(httpcore2.ConnectError, ConnectionRefusedError):
    """A program that is not the task's listens on the port."""


@dataclass(frozen=True, slots=True)
class TaskRoute:
    """How a program is reached from this machine.

    Attributes:
        host: that of a run of a task.
        state_dir: of the server whose task is meant.
    """

    host: str
    port: int
    state_dir: Path

    @staticmethod
    def to(record: RunRecord, state_dir: Path, port: int | None = None) -> TaskRoute:
        """That to a port of a running task; left out: to where it serves."""
        wanted = record.port if port is None else port
        assert wanted is not None
        run = record.id
        return TaskRoute(f"{run.job.encode().hex()}.{run.attempt}.{run.task}", wanted, state_dir)

    @property
    def url(self) -> str:
        """Its address, for a pool of connections that was made for ``state_dir``."""
        return f"http://{self.host}:{self.port}"

    async def connect(self, within_s: float) -> socket.socket:
        """A connection to the program, which does not block.

        No thread waits for the program meanwhile: it may take its time, for any number of connections.

        Raises:
            OSError: no program listens there, or not the task's (``ForeignListenerError``).
        """
        record, loop = self.record(), asyncio.get_running_loop()
        by_task_socket = _has_task_socket(record, self.port)
        connection = socket.socket(socket.AF_UNIX if by_task_socket else socket.AF_INET)
        connection.setblocking(False)
        try:
            async with asyncio.timeout(within_s):
                if not by_task_socket:
                    await loop.sock_connect(connection, (ADDRESS, self.port))
                    await asyncio.to_thread(_require_own, connection, record, self.state_dir)
                    return connection
                await loop.sock_connect(connection, _name_of(self.state_dir, record))
                await loop.sock_sendall(connection, _first_message(record, self.port))
                if await loop.sock_recv(connection, len(OPEN)) != OPEN:
                    raise ConnectionRefusedError("no program listens behind the task socket")
        except BaseException:  # also a cancellation
            connection.close()
            raise
        return connection

    def record(self) -> RunRecord:
        """The run of the task as it is now.

        Raises:
            ConnectionRefusedError: it is over.
        """
        job, attempt, task = self.host.split(".")
        run = TaskId(bytes.fromhex(job).decode(), int(attempt), int(task))
        record = read_record(TaskFiles.of(self.state_dir, run))
        if record is None or not record.alive:
            raise ConnectionRefusedError("the task runs no more")
        return record


class TaskNetwork(httpcore2.AsyncNetworkBackend):
    """Connections for a pool that asks programs."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._network = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """A connection to a port of a task."""
        try:
            record = TaskRoute(host, port, self._state_dir).record()
        except ConnectionRefusedError as error:
            raise httpcore2.ConnectError(str(error)) from error
        if by_task_socket := _has_task_socket(record, port):
            stream = await self._network.connect_unix_socket(_name_of(self._state_dir, record), timeout)
        else:
            stream = await self._network.connect_tcp(ADDRESS, port, timeout, local_address, socket_options)
        try:
            if not by_task_socket:
                await asyncio.to_thread(_require_own, stream.get_extra_info("socket"), record, self._state_dir)
                return stream
            await stream.write(_first_message(record, port), timeout)
            if await stream.read(len(OPEN), timeout) != OPEN:
                raise httpcore2.ConnectError("no program listens behind the task socket")
        except BaseException as error:  # also a cancellation
            await stream.aclose()
            if isinstance(error, (OSError, *UNREACHED)):
                raise _for_pool(error) from error
            raise
        return stream

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await self._network.sleep(seconds)


def require_listening(file: JobFile, state_dir: Path) -> None:
    """Check that a job can have the network, and its program the place to listen, that its file names.

    Raises:
        InvalidInputError: it cannot, on this machine or in a container.
    """
    listening = "port" if file.serve is None else file.serve.listen
    if file.network_named == "private" and file.image is not None:
        raise InvalidInputError("a container cannot have a private network here", "use serve.listen: socket")
    if file.network_named == "private" and (found := namespaces.network_trouble()):
        raise InvalidInputError(f"there are no private networks here: {found}", "use serve.listen: port or socket")
    if listening == "socket":
        example = program_folder(state_dir, task_socket_name("", 1, 0)) / PROGRAM_SOCKET
        if len(os.fsencode(example)) > LONGEST_NAME:
            cause = f"serve.listen: socket does not work here: {state_dir} is too long for the name of a socket"
            raise InvalidInputError(cause, "use port or private, or a state directory with a shorter path")


def _has_task_socket(record: RunRecord, port: int) -> bool:
    return bool(record.task_socket) and (record.private or port == record.port)


def _first_message(record: RunRecord, port: int) -> bytes:
    """What is sent first to a task socket."""
    return port_asked(0 if port == record.port else port)


def _require_own(connection: socket.socket, record: RunRecord, state_dir: Path) -> None:
    """Check that a connection to a port of the machine leads to a task's own program.

    Raises:
        ForeignListenerError: it does not.
        OSError: the kernel does not report it.
    """
    if not is_held_by(connection, _processes_of(record, state_dir)):
        port = connection.getpeername()[1]
        raise ForeignListenerError(f"a program that is not the job's own listens on port {port}")


def _processes_of(record: RunRecord, state_dir: Path) -> list[int]:
    """The living processes of a task. Those that a daemon started are known by a variable, which others can set too."""
    own = procfs.descendants(record.supervisor_pid)
    if record.detached:
        supervisors = {each.supervisor_pid for each in running_records(state_dir)}
        own += [pid for pid in detached_processes(record) if procfs.first_above(pid, supervisors) is None]
    return own


def _for_pool(error: Exception) -> httpcore2.ConnectError:
    """What was wrong before a connection stood, as what it is: nothing was asked yet."""
    return error if isinstance(error, httpcore2.ConnectError) else httpcore2.ConnectError(str(error))


def _name_of(state_dir: Path, record: RunRecord) -> str:
    """The socket of a task, by a name that the kernel takes however deep the state directory lies."""
    path = task_socket_path(state_dir, record.task_socket)
    if len(os.fsencode(path)) <= LONGEST_NAME:
        return str(path)
    return f"/proc/self/fd/{_opened(state_dir / TASK_SOCKETS)}/{path.name}"


@functools.cache
def _opened(folder: Path) -> int:
    """The one folder of this server's task sockets, for as long as it runs."""
    return os.open(folder, os.O_PATH | os.O_DIRECTORY)
