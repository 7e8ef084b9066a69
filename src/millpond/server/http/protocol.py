"""One connection of the HTTP server, over uvicorn's parser: bounded in what it sends and in how long it takes.

The parser itself takes headers and trailers without end, waits for them for ever, and reads to the end what has been
answered.
"""

from __future__ import annotations

import asyncio
import functools
import os
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final

from uvicorn._types import ASGI3Application
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.utils import get_remote_addr
from uvicorn.server import ServerState

from millpond.server.http.connections import HEAD_WITHIN_S, Connections, CountedConnection
from millpond.server.http.websocket_protocol import WebSocketConnection

LARGEST_HEAD: Final = 64 * 1024
"""Bytes that a request's first line and headers may take together, and what is neither body nor head at a time: the
trailers behind a body in chunks, and what the sizes of these say beside."""
LARGEST_LEFTOVER: Final = 2**20
"""Bytes of a body that are read and dropped after the answer, so that the client comes to read that."""
_HANDSHAKE: Final = b"\x16"
_RECORD_HEAD: Final = 5
_LARGEST_RECORD: Final = 2**14
"""Of RFC 8446, section 5.1: the kind of a record, how long its head is, and how long the rest may be."""


def protocol_factory(connections: Connections, encryption: ssl.SSLContext | None) -> Callable[..., asyncio.Protocol]:
    """What uvicorn calls for each new connection.

    Args:
        connections: counts them.
        encryption: what they are encrypted with; None: they are not.
    """

    def make(
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> asyncio.Protocol:
        protocol = _HttpConnection(config, server_state, app_state, _loop)
        if encryption is None:
            protocol.counted = CountedConnection(connections)
            return protocol
        return _TlsHandshake(protocol, encryption, CountedConnection(connections))

    return make


class _HttpConnection(HttpToolsProtocol):
    """Requests and answers, one after the other."""

    counted: CountedConnection
    _answering: RequestResponseCycle | None = None
    _head_bytes: int | None = None
    """Received of a head that is not complete; None between heads."""
    _is_body_whole = True
    _bodiless_bytes = 0
    """Received behind the head since the last of the body."""
    _leftover_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has come."""
        super().connection_made(transport)
        self.ws_protocol_class = functools.partial(WebSocketConnection, self.counted)  # type: ignore[assignment]
        self.counted.opened(self.client[0] if self.client else "", transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone; so is who asked for what is being answered, which may be an earlier request than the last."""
        self.counted.all.closed(self.counted)
        if self._answering is not None:
            self._answering.disconnected = True
            self._answering.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what arrived."""
        self._bodiless_bytes += len(data)
        super().data_received(data)
        if not self._is_body_whole and self._bodiless_bytes > LARGEST_HEAD:
            self.transport.abort()
        elif self._head_bytes is not None:
            self._head_bytes += len(data)
            if self._head_bytes > LARGEST_HEAD and not self.transport.is_closing():
                self.send_400_response(f"The headers of a request may take {LARGEST_HEAD // 1024} KiB.")
            self.counted.all.begins(self.counted, len(data))
        elif not self._is_body_whole and self.cycle is not None and self.cycle.response_complete:
            self._leftover_bytes += len(data)
            if self._leftover_bytes > LARGEST_LEFTOVER:
                self.transport.abort()

    def on_message_begin(self) -> None:
        """A request begins."""
        self._head_bytes = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header is here; one behind the body is none of the request's (RFC 9110, section 6.5.1)."""
        if self._head_bytes is not None:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Its head is here.

        Raises:
            ValueError: it names two hosts (RFC 9112, section 3.2): what stands before this server may take the other
                one for the right one. The parser gives up then, and the request is answered with 400.
        """
        if sum(name == b"host" for name, _ in self.headers) > 1:
            raise ValueError("two Host headers")
        self._head_bytes = None
        self._bodiless_bytes = 0
        self._is_body_whole = False
        self.counted.all.works(self.counted)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of its body is here."""
        self._bodiless_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """All of it is here."""
        self._is_body_whole = True
        super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, functools.partial(_answer, cycle, app))

    def on_response_complete(self) -> None:
        """It is answered."""
        super().on_response_complete()
        if not self.pipeline:
            self.counted.all.waits(self.counted)

    def pause_writing(self) -> None:
        """The client does not take what is sent."""
        self.counted.all.stalls(self.counted, self.transport.get_write_buffer_size())
        super().pause_writing()

    def resume_writing(self) -> None:
        """It does again."""
        self.counted.all.flows(self.counted)
        super().resume_writing()


async def _answer(cycle: RequestResponseCycle, app: ASGI3Application, *channel: Any) -> None:
    """Have a request answered. An answer that is begun and not ended is broken off: its client must not take it for
    whole. uvicorn does the same, and logs it as a defect.
    """
    await app(*channel)
    if cycle.response_started and not cycle.response_complete and not cycle.disconnected:
        cycle.transport.close()
        cycle.disconnected = True


class _TlsHandshake(asyncio.Protocol):
    """A connection until it is encrypted; from then on it is the other protocol's.

    asyncio can do the handshake before it shows a connection, but then those that never end it cannot be counted.
    """

    def __init__(self, protocol: _HttpConnection, encryption: ssl.SSLContext, counted: CountedConnection) -> None:
        self._protocol = protocol
        self._encryption = encryption
        self._counted = counted
        protocol.counted = counted
        self._handshake: asyncio.Task[None]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has come: its socket is taken over before anything is read."""
        connection = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
        client = get_remote_addr(transport)
        transport.abort()
        self._handshake = self._protocol.loop.create_task(self._encrypt(connection))
        self._protocol.connections.add(self)  # type: ignore[arg-type]
        self._counted.opened(client[0] if client else "", self._handshake.cancel)

    def shutdown(self) -> None:
        """The server ends."""
        self._handshake.cancel()

    async def _encrypt(self, connection: socket.socket) -> None:
        loop = self._protocol.loop
        try:
            if not await _hello_of(loop, connection):
                raise ConnectionAbortedError
            self._counted.all.shakes_hands(self._counted)
            await loop.connect_accepted_socket(
                lambda: self._protocol, connection, ssl=self._encryption, ssl_handshake_timeout=HEAD_WITHIN_S
            )
        except (OSError, asyncio.CancelledError):
            # ssl.SSLError is an OSError: the client speaks no TLS, or none that we speak, or it went away.
            connection.close()
            self._counted.all.closed(self._counted)
        finally:
            self._protocol.connections.discard(self)


async def _hello_of(loop: asyncio.AbstractEventLoop, connection: socket.socket) -> bool:
    """Wait until the first record of a TLS handshake has come as a whole; false: what comes is something else.

    Until then a connection costs next to nothing; what a handshake needs is fifty times as much.
    """
    connection.setblocking(False)
    record = await _peek(loop, connection, _RECORD_HEAD)
    size = int.from_bytes(record[3:5])
    if record[:1] != _HANDSHAKE or not 0 < size <= _LARGEST_RECORD:
        return False
    return len(await _peek(loop, connection, _RECORD_HEAD + size)) == _RECORD_HEAD + size


async def _peek(loop: asyncio.AbstractEventLoop, connection: socket.socket, size: int) -> bytes:
    """What has come, once that are so many bytes or the other end is closed; it stays to be read."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)
    something = asyncio.Event()
    loop.add_reader(connection, something.set)
    try:
        await something.wait()
    finally:
        loop.remove_reader(connection)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
    return connection.recv(size, socket.MSG_PEEK)
