"""One WebSocket between a client and a program: messages both ways, with the program's own close code at the end."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from starlette.types import Receive, Scope, Send
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.typing import Subprotocol

from millpond.engines.task_access import ForeignListenerError
from millpond.server.http.held_messages import HeldMessages
from millpond.server.http.server import LARGEST_MESSAGE
from millpond.server.serving.proxy.requests import CONNECT_WITHIN_S, BrokenAnswerError, ProxiedRequest
from millpond.server.sessions.relay import keep_asking, until_one_ends
from millpond.server.sessions.task_routes import ADDRESS

_NORMAL, _GOING_AWAY, _NO_CODE, _NOT_ALLOWED = 1000, 1001, 1005, 1008
_SAYABLE = frozenset((1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014))


class _NoLongerAllowedError(Exception):
    """What opened a WebSocket opens it no more."""


class SocketRelay:
    """Relays WebSockets; belongs to one event loop."""

    def __init__(self) -> None:
        self._held = HeldMessages()

    async def relay(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        target: ProxiedRequest,
        on_input: Callable[[str | bytes], None],
        holds: Callable[[], bool],
    ) -> None:
        """Open a WebSocket to the program, accept the client's, and pass messages on until either closes.

        Args:
            on_input: called with each message from the client.
            holds: asked before each message is passed on, and every few seconds; when it says no, both are closed.

        Raises:
            ConnectionError: no program listens there, or not the task (``ForeignListenerError``).
            BrokenAnswerError: the program takes no WebSocket there.
        """
        try:
            program = await _open(scope, target, self._held)
        except InvalidStatus as error:
            raise BrokenAnswerError(f"the program answered {error.response.status_code} to a WebSocket") from error
        except (InvalidHandshake, TimeoutError, EOFError) as error:
            raise BrokenAnswerError(f"the program opened no WebSocket ({error})") from error
        except ForeignListenerError:
            raise
        except OSError as error:
            raise ConnectionError(str(error)) from error
        async with program:
            await receive()  # the client's own request to open
            await send({"type": "websocket.accept", "subprotocol": program.subprotocol})
            try:
                await until_one_ends(
                    _to_program(receive, program, on_input, holds),
                    _to_client(program, send, holds),
                    keep_asking(partial(_require, holds)),
                )
            except _NoLongerAllowedError:
                await send({"type": "websocket.close", "code": _NOT_ALLOWED, "reason": "you are no longer signed in"})


class _ProgramConnection(ClientConnection):
    """The WebSocket of a program, which may begin messages without end.

    Args:
        held: counts what is held of them.
    """

    def __init__(self, held: HeldMessages, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._held = held

    def data_received(self, data: bytes) -> None:
        """Take what arrived."""
        self._held.grow(self, len(data))
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._held.forget(self)
        super().connection_lost(exc)

    def passed_on(self) -> None:
        """What it said last is with the client."""
        self._held.passed_on(self, len(self.protocol.reader.buffer))

    def abort(self) -> None:
        """Close it at once."""
        self.transport.abort()


async def _open(scope: Scope, target: ProxiedRequest, held: HeldMessages) -> _ProgramConnection:
    host = next((value for name, value in target.headers if name == b"host"), ADDRESS.encode())
    # The library writes the Host header from the address, so that has the public name; the socket says where to go.
    program = await connect(
        f"ws://{host.decode('latin-1')}{target.path.decode('latin-1')}",
        sock=await target.way.connect(CONNECT_WITHIN_S),
        additional_headers=[
            (name.decode("latin-1"), value.decode("latin-1")) for name, value in target.headers if name != b"host"
        ],
        subprotocols=[Subprotocol(name) for name in scope.get("subprotocols", [])] or None,
        user_agent_header=None,
        compression=None,
        proxy=None,
        open_timeout=CONNECT_WITHIN_S,
        ping_interval=None,  # a suspended program answers no pings, and is still there
        max_size=LARGEST_MESSAGE,
        max_queue=1,  # each may be as large
        create_connection=partial(_ProgramConnection, held),  # type: ignore[arg-type]
    )
    assert isinstance(program, _ProgramConnection)
    return program


async def _to_program(
    receive: Receive, program: ClientConnection, on_input: Callable[[str | bytes], None], holds: Callable[[], bool]
) -> None:
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            code = message.get("code", _NORMAL)
            await program.close(code if code in _SAYABLE or 3000 <= code < 5000 else _GOING_AWAY)
            return
        _require(holds)
        text = message.get("text")
        said = message["bytes"] if text is None else text
        on_input(said)
        try:
            await program.send(said)
        except ConnectionClosed:
            return


async def _to_client(program: _ProgramConnection, send: Send, holds: Callable[[], bool]) -> None:
    try:
        async for message in program:
            _require(holds)
            await send(
                {"type": "websocket.send", "text": message}
                if isinstance(message, str)
                else {"type": "websocket.send", "bytes": message}
            )
            program.passed_on()
    except ConnectionClosed:
        pass  # with an error code, which is passed on below
    code = program.close_code
    known = code is not None and (code in _SAYABLE or 3000 <= code < 5000)
    fallback = _NORMAL if code == _NO_CODE else _GOING_AWAY
    await send({"type": "websocket.close", "code": code if known else fallback, "reason": program.close_reason or ""})


def _require(holds: Callable[[], bool]) -> None:
    if not holds():
        raise _NoLongerAllowedError
