"""How programs of tasks are addressed: a run of a task is like a machine, with a host and ports.

No resolver of names is ever asked about such a host; the engine that runs the task has the way there.
"""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import httpcore2

from millpond.engines.task_access import ForeignListenerError, TaskAccess, TaskUnreachedError
from millpond.model.errors import UnavailableError
from millpond.node.task.records import TaskId

ADDRESS: Final = "127.0.0.1"
"""What programs are told that they were asked at."""
UNREACHED: Final = (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException)
"""What a pool raises when a program does not answer as one does."""


@dataclass(frozen=True, slots=True)
class TaskRoute:
    """How a program is reached.

    Attributes:
        access: to the tasks of the engine that runs it.
    """

    task: TaskId
    port: int
    access: TaskAccess

    @property
    def host(self) -> str:
        """The run of the task, as a host."""
        return f"{self.task.job.encode().hex()}.{self.task.attempt}.{self.task.task}"

    @property
    def url(self) -> str:
        """Its address, for a pool of connections that was made for the same ``access``."""
        return f"http://{self.host}:{self.port}"

    async def connect(self, within_s: float) -> socket.socket:
        """A connection to the program, which does not block.

        Raises:
            OSError: no program listens there, or not the task's (``ForeignListenerError``).
        """
        return await self.access.connect(self.task, self.port, within_s)

    async def open(self, within_s: float) -> socket.socket:
        """The same for a client that is told why there is none.

        Raises:
            UnavailableError: no program listens there, or not the task's, or the task is not reached.
        """
        try:
            return await self.connect(within_s)
        except ForeignListenerError as error:
            raise UnavailableError(str(error), "have the job listen on another port") from error
        except TaskUnreachedError as error:
            raise UnavailableError(error.cause, error.remedy) from error
        except OSError as error:
            detail = f" ({error.strerror})" if error.strerror else ""
            raise UnavailableError(
                f"no program listens on port {self.port}{detail}", "wait until the program does"
            ) from error


class TaskNetwork(httpcore2.AsyncNetworkBackend):
    """Connections for a pool that asks programs."""

    def __init__(self, access: TaskAccess) -> None:
        self._access = access

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """A connection to a port of a task."""
        job, attempt, task = host.split(".")
        run = TaskId(bytes.fromhex(job).decode(), int(attempt), int(task))
        try:
            return _ProgramStream(await self._access.connect(run, port, timeout))
        except ForeignListenerError:
            raise
        except OSError as error:  # whatever it was: nothing was asked yet
            raise httpcore2.ConnectError(str(error)) from error

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


class _ProgramStream(httpcore2.AsyncNetworkStream):
    """A connected socket, as a pool has it."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        with _as_pools_say(httpcore2.ReadTimeout, httpcore2.ReadError):
            async with asyncio.timeout(timeout):
                return await asyncio.get_running_loop().sock_recv(self._socket, max_bytes)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        with _as_pools_say(httpcore2.WriteTimeout, httpcore2.WriteError):
            async with asyncio.timeout(timeout):
                await asyncio.get_running_loop().sock_sendall(self._socket, buffer)

    async def aclose(self) -> None:
        self._socket.close()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        raise httpcore2.UnsupportedProtocol("programs of tasks are asked without encryption")

    def get_extra_info(self, info: str) -> Any:
        """``is_readable``: an idle connection of which that is true has been closed at its other end."""
        match info:
            case "socket":
                return self._socket
            case "is_readable":
                poll = select.poll()
                poll.register(self._socket, select.POLLIN)
                return bool(poll.poll(0))
            case _:
                return None


@contextmanager
def _as_pools_say(late: type[Exception], broken: type[Exception]) -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise late(str(error)) from error
    except OSError as error:
        raise broken(str(error)) from error
