"""The HTTP server around the application: one listening socket, encrypted or not, three signals, a bounded end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import signal
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Final

import uvicorn
import uvloop
from starlette.types import ASGIApp

from millpond.model.errors import UnavailableError
from millpond.server.http.connections import ConnectionLimits, Connections
from millpond.server.http.protocol import protocol_factory

END_WITHIN_S: Final = 5
"""Requests under way at the end of the server get so long."""
LARGEST_MESSAGE: Final = 64 * 2**20
"""Bytes of a message of a WebSocket; notebooks send whole pictures and tables as one."""
_BACKLOG: Final = 512


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """How requests come in.

    Attributes:
        encryption: what connections are encrypted with; None: they are not.
        trusted: addresses and networks of proxies, which bring all users.
    """

    encryption: ssl.SSLContext | None = None
    trusted: tuple[str, ...] = ()


PLAIN: Final = HttpOptions()


def listen(host: str, port: int, said_by: str = "--host and --port") -> socket.socket:
    """A listening socket.

    Args:
        said_by: where the operator can choose another address.

    Raises:
        UnavailableError: the port is taken or not allowed, or the address is not this machine's.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        # With the protocol named, answers go out at once (asyncio sets TCP_NODELAY only then).
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    except (OSError, UnicodeError) as error:
        raise UnavailableError(f"no address {host!r} ({error})", f"choose another with {said_by}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        remedy = {
            errno.EADDRNOTAVAIL: f"choose an address of this machine with {said_by}",
            errno.EACCES: f"choose a port from 1024 on with {said_by}",
        }.get(error.errno or 0, f"stop what listens there, or choose another with {said_by}")
        raise UnavailableError(f"port {port} on {host} cannot be used ({error.strerror})", remedy) from error
    return listener


def url_of(listener: socket.socket, scheme: str = "http") -> str:
    """The base address by which this machine reaches the socket."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class HttpServer:
    """Serves one application until it is stopped.

    Args:
        on_ready: called once requests are taken.
        on_stop: called at once when a signal asks for the end.
        on_hangup: called when SIGHUP asks to read the configuration again; may block.
        options: how requests come in.
    """

    def __init__(
        self,
        app: ASGIApp,
        on_ready: Callable[[], None],
        on_stop: Callable[[], None],
        on_hangup: Callable[[], None],
        options: HttpOptions = PLAIN,
    ) -> None:
        connections = Connections(ConnectionLimits.of_this_process(), time.monotonic, options.trusted)
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            http=protocol_factory(connections, options.encryption),  # type: ignore[arg-type]
            proxy_headers=False,  # every client could write them; ``trusted_proxies`` knows whose count
            ws="websockets-sansio",
            ws_max_size=LARGEST_MESSAGE,
            ws_per_message_deflate=False,
            timeout_graceful_shutdown=END_WITHIN_S,
        )
        self._server = _Server(config, connections.close_overdue)
        self._on_ready = on_ready
        self._on_stop = on_stop
        self._on_hangup = on_hangup

    def run(self, listener: socket.socket) -> None:
        """Serve until SIGINT, SIGTERM or ``stop``; a second signal does not wait for open requests."""
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve(listener))

    def stop(self) -> None:
        """Take no more requests, finish those under way, return from ``run``. Any thread."""
        self._server.should_exit = True

    async def _serve(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._end)
        loop.add_signal_handler(signal.SIGHUP, lambda: loop.run_in_executor(None, self._on_hangup))
        serving: Awaitable[None] = asyncio.ensure_future(self._server.serve(sockets=[listener]))
        while not self._server.started and not self._server.should_exit:
            await asyncio.sleep(0.005)
        if self._server.started:
            self._on_ready()
        await serving

    def _end(self) -> None:
        self._server.force_exit = self._server.should_exit
        self._on_stop()
        self.stop()


class _Server(uvicorn.Server):
    """Looks after connections, and leaves signals alone: uvicorn raises them again at its end, which would cut our own
    short."""

    def __init__(self, config: uvicorn.Config, close_overdue: Callable[[], None]) -> None:
        super().__init__(config)
        self._close_overdue = close_overdue

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second."""
        self._close_overdue()
        return await super().on_tick(counter)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing."""
        yield
