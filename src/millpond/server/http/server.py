"""The HTTP server around the application: one listening socket, encrypted or not, three signals, a bounded end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
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

from millpond.server.http.connections import HEAD_WITHIN_S, ConnectionLimits, Connections
from millpond.server.http.protocol import protocol_factory

log = logging.getLogger(__name__)

_ENDS: Final = (signal.SIGINT, signal.SIGTERM)
END_WITHIN_S: Final = 5
"""Requests under way at the end of the server get so long."""
LARGEST_MESSAGE: Final = 64 * 2**20
"""Bytes of a message of a WebSocket; notebooks send whole pictures and tables as one."""


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


class HttpServer:
    """Serves one application until it is stopped.

    Args:
        on_ready: called once requests are taken.
        on_stop: called at once when a signal asks for the end.
        on_hangup: called when SIGHUP asks to read the configuration again, once at a time; may block.
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
            # Longer than httpx2, and so our own client, keeps idle ones: no request meets the end of its connection.
            timeout_keep_alive=int(HEAD_WITHIN_S),
            timeout_graceful_shutdown=END_WITHIN_S,
        )
        self._server = _Server(config, connections.close_overdue)
        self._on_ready = on_ready
        self._on_stop = on_stop
        self._on_hangup = on_hangup
        self._told_to_end = False

    def run(self, listener: socket.socket) -> None:
        """Serve until SIGINT, SIGTERM or ``stop``; a second signal does not wait for open requests.

        After ``stop`` both do again what they did before: a standby that takes over can be ended meanwhile. After one
        of them neither does anything: the process is about to end. SIGHUP does nothing in either case.
        """
        before = {number: signal.getsignal(number) for number in _ENDS}
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve(listener))
        if not self._told_to_end:  # the event loop has left its handlers, which do nothing
            for number, handler in before.items():
                signal.signal(number, handler)

    def stop(self) -> None:
        """Take no more requests, finish those under way, return from ``run``. Any thread."""
        self._server.should_exit = True

    async def _serve(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for number in _ENDS:
            loop.add_signal_handler(number, self._end)
        hung_up = asyncio.Event()
        loop.add_signal_handler(signal.SIGHUP, hung_up.set)
        heeding = asyncio.ensure_future(self._heed_hangups(hung_up))
        serving: Awaitable[None] = asyncio.ensure_future(self._server.serve(sockets=[listener]))
        while not self._server.started and not self._server.should_exit:
            await asyncio.sleep(0.005)
        if self._server.started:
            self._on_ready()
        await serving
        heeding.cancel()

    async def _heed_hangups(self, hung_up: asyncio.Event) -> None:
        """Call ``on_hangup`` once at a time, however many signals come: one that hangs takes no more than a thread."""
        while await hung_up.wait():
            hung_up.clear()
            try:
                await asyncio.to_thread(self._on_hangup)
            except Exception:
                log.exception("what SIGHUP asked for has failed")

    def _end(self) -> None:
        self._told_to_end = True
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
