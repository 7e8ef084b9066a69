"""Ways to the programs of tasks: at ports of this machine, or through doors (``node.door``).

A program behind a door is addressed like one at a port, by a host and a port; its host is the name of the door with
``.door`` behind it, which no resolver of names is ever asked about.
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
from millpond.node import private_network
from millpond.node.door import DOORS, LONGEST_NAME, OPEN, PROGRAM_SOCKET, door_name, door_of, folder_behind
from millpond.node.records import RunRecord
from millpond.specs.job import JobFile

ADDRESS: Final = "127.0.0.1"
UNREACHED: Final = (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException)
"""What a pool raises when a program does not answer as one does."""
_DOOR: Final = ".door"


@dataclass(frozen=True, slots=True)
class Way:
    """How a program is reached from this machine.

    Attributes:
        host: ``ADDRESS``, or that of a door.
        state_dir: of the server whose doors are meant.
    """

    host: str
    port: int
    state_dir: Path

    @staticmethod
    def to(record: RunRecord, state_dir: Path) -> Way:
        """That to a running task which serves."""
        assert record.port is not None
        return Way(f"{record.door}{_DOOR}" if record.door else ADDRESS, record.port, state_dir)

    @property
    def through_door(self) -> bool:
        """Whether it leads through a door."""
        return self.host.endswith(_DOOR)

    @property
    def url(self) -> str:
        """Its address, for a pool of connections that was made for ``state_dir``."""
        return f"http://{self.host}:{self.port}"

    def connect_now(self, within_s: float) -> socket.socket:
        """A connection to the program. It blocks.

        Raises:
            OSError: nobody listens there.
        """
        if not self.through_door:
            return socket.create_connection((self.host, self.port), within_s)
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(within_s)
            connection.connect(_name_of(self.state_dir, self.host))
            if connection.recv(len(OPEN)) != OPEN:
                raise ConnectionRefusedError("nobody listens behind the door")
        except OSError:
            connection.close()
            raise
        return connection

    async def connect(self, within_s: float) -> socket.socket:
        """The same without blocking; the connection does not block either."""
        if self.through_door:
            connection = await asyncio.to_thread(self.connect_now, within_s)
            connection.setblocking(False)
            return connection
        connection = socket.socket()
        connection.setblocking(False)
        try:
            async with asyncio.timeout(within_s):
                await asyncio.get_running_loop().sock_connect(connection, (self.host, self.port))
        except BaseException:
            connection.close()
            raise
        return connection


class DoorsAndPorts(httpcore2.AsyncNetworkBackend):
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
        """A connection to a port, or through a door."""
        if not host.endswith(_DOOR):
            return await self._network.connect_tcp(host, port, timeout, local_address, socket_options)
        stream = await self._network.connect_unix_socket(_name_of(self._state_dir, host), timeout)
        if await stream.read(len(OPEN), timeout) != OPEN:
            await stream.aclose()
            raise httpcore2.ConnectError("nobody listens behind the door")
        return stream

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await self._network.sleep(seconds)


class DoorsAndPortsNow(httpcore2.NetworkBackend):
    """The same for a pool that blocks."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._network = httpcore2.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        """A connection to a port, or through a door."""
        if not host.endswith(_DOOR):
            return self._network.connect_tcp(host, port, timeout, local_address, socket_options)
        stream = self._network.connect_unix_socket(_name_of(self._state_dir, host), timeout)
        if stream.read(len(OPEN), timeout) != OPEN:
            stream.close()
            raise httpcore2.ConnectError("nobody listens behind the door")
        return stream


def require_listening(file: JobFile, state_dir: Path) -> None:
    """Check that the program of a job can listen where its file says.

    Raises:
        InvalidInputError: it cannot, on this machine or in a container.
    """
    listening = "port" if file.serve is None else file.serve.listen
    if listening == "private" and file.image is not None:
        raise InvalidInputError("a container cannot have a network of its own here", "use serve.listen: socket")
    if listening == "private" and (found := private_network.trouble()):
        raise InvalidInputError(f"serve.listen: private does not work here: {found}", "use port or socket")
    if listening == "socket":
        example = folder_behind(state_dir, door_name("", 1, 0)) / PROGRAM_SOCKET
        if len(os.fsencode(example)) > LONGEST_NAME:
            cause = f"serve.listen: socket does not work here: {state_dir} is too long for the name of a socket"
            raise InvalidInputError(cause, "use port or private, or a state directory with a shorter path")


def _name_of(state_dir: Path, host: str) -> str:
    """The socket of a door, by a name that the kernel takes however deep the state directory lies."""
    path = door_of(state_dir, host.removesuffix(_DOOR))
    if len(os.fsencode(path)) <= LONGEST_NAME:
        return str(path)
    return f"/proc/self/fd/{_opened(state_dir / DOORS)}/{path.name}"


@functools.cache
def _opened(folder: Path) -> int:
    """The one folder of this server's doors, for as long as it runs."""
    return os.open(folder, os.O_PATH | os.O_DIRECTORY)
