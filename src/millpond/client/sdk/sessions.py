"""Live connections into a job: a command beside a task, or a port of it. One WebSocket each.

``node.sessions.session`` and ``server.sessions.websockets`` define the messages.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlencode

from websockets.exceptions import ConnectionClosed, ConnectionClosedOK, InvalidHandshake, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from millpond.client.sdk.transport.connection import segment
from millpond.client.sdk.transport.discovery import Address, is_on_this_machine, no_answer_remedy
from millpond.client.sdk.transport.failures import from_answer
from millpond.client.sdk.transport.trust import distrusted, encrypts, trust
from millpond.model.errors import ConflictError, UnavailableError
from millpond.specs.api.base import API_PREFIX

BLOCK = 32_768
"""Bytes of one message of input."""
_STDIN = b"\x00"
_STREAMS = {1: "output", 2: "errors"}
_OPEN_WITHIN_S = 15.0
_WAITS_S = 1.0
"""A thread waits for so long at a time: a signal that comes just before it begins to is noticed when it goes on."""


@dataclass(frozen=True, slots=True)
class TerminalSize:
    """The size of a terminal in characters."""

    rows: int
    columns: int


@dataclass(frozen=True, slots=True)
class Order:
    """A command to run beside a task.

    Attributes:
        window: of the terminal that it gets; None: it gets pipes.
        term: the kind of terminal (``$TERM``).
    """

    argv: tuple[str, ...]
    window: TerminalSize | None = None
    term: str = ""

    def message(self) -> dict[str, Any]:
        """What the server is sent."""
        window = {} if self.window is None else {"rows": self.window.rows, "columns": self.window.columns}
        return {"argv": list(self.argv), "tty": self.window is not None, "term": self.term, **window}


class Session:
    """A command that runs beside a task. Writing and reading may be done by two threads.

    Attributes:
        exit_code: as a shell shows it, once ``output`` has come to its end.
    """

    def __init__(self, address: Address, job: str, task: int, order: Order) -> None:
        self.exit_code: int | None = None
        self._line_end = "\n" if order.window is None else "\r\n"
        self._socket = _open(address, f"/jobs/{segment(job)}/exec", {"task": task})
        self._say(order.message())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._socket.close()

    def write(self, data: bytes) -> None:
        """Input for the command; what comes after its end is dropped."""
        for begin in range(0, len(data), BLOCK):
            self._send(_STDIN + data[begin : begin + BLOCK])

    def end_input(self) -> None:
        """There is no more input."""
        self._say({"eof": True})

    def resize(self, window: TerminalSize) -> None:
        """The terminal has another size now."""
        self._say({"rows": window.rows, "columns": window.columns})

    def output(self) -> Iterator[tuple[str, bytes]]:
        """What the command writes, as ``output`` or ``errors`` and a piece, up to its end.

        Raises:
            MillpondError: it could not be started, or the connection was lost.
        """
        for message in _messages(self._socket):
            if isinstance(message, bytes):
                yield _STREAMS[message[0]], message[1:]
                continue
            said = json.loads(message)
            self.exit_code = said.get("exit")
            if "error" in said and self.exit_code is None:
                raise ConflictError(said["error"], said.get("remedy", ""))
            if "error" in said:
                yield "errors", f"{said['error']}{self._line_end}".encode()
        if self.exit_code is None:
            raise UnavailableError("the command ended without an exit code", "its task may have ended, see pond ps")

    def _say(self, message: Mapping[str, Any]) -> None:
        self._send(json.dumps(message))

    def _send(self, message: bytes | str) -> None:
        try:
            self._socket.send(message)
        except ConnectionClosed:
            return  # the reading side finds out why


class Tunnel:
    """A connection to a port of a task."""

    def __init__(self, address: Address, job: str, task: int, port: int) -> None:
        self._socket = _open(address, f"/jobs/{segment(job)}/forward", {"task": task, "port": port})

    def close(self) -> None:
        """End it."""
        self._socket.close()

    def carry_in(self, read: Callable[[int], bytes]) -> None:
        """Send what ``read`` gives, up to its end."""
        try:
            while data := read(BLOCK):
                self._socket.send(data)
            self._socket.send(json.dumps({"eof": True}))
        except ConnectionClosed:
            return

    def output(self) -> Iterator[bytes]:
        """What comes from the port, up to its end.

        Raises:
            MillpondError: no program listens there.
        """
        for message in _messages(self._socket):
            if isinstance(message, str):
                said = json.loads(message)
                raise UnavailableError(said["error"], said.get("remedy", ""))
            yield message


def _messages(socket: ClientConnection) -> Iterator[bytes | str]:
    try:
        while True:
            try:
                message = socket.recv(_WAITS_S)
            except TimeoutError:
                continue
            yield message
    except ConnectionClosedOK:
        return
    except ConnectionClosed as error:
        raise UnavailableError("the connection to the server was lost", "try again") from error


def _open(address: Address, path: str, params: Mapping[str, Any]) -> ClientConnection:
    """A WebSocket to a route of the API.

    Raises:
        UnavailableError: no server answers there.
        MillpondError: it refuses.
    """
    url = f"{address.url.replace('http', 'ws', 1)}{API_PREFIX}{path}?{urlencode(params)}"
    try:
        return connect(
            url,
            additional_headers={"Authorization": f"Bearer {address.token}"},
            # A proxy meant for the outer world must not get requests for this machine.
            proxy=None if is_on_this_machine(url) else True,
            open_timeout=_OPEN_WITHIN_S,
            ssl=_context(address),
            compression=None,
            max_size=None,
        )
    except InvalidStatus as error:
        raise from_answer(error.response.status_code, error.response.body, address.url) from error
    except ssl.SSLError as error:
        raise distrusted(error, address.url) or error from error
    except (OSError, InvalidHandshake, TimeoutError) as error:
        raise UnavailableError(f"no server answers at {address.url} ({error})", no_answer_remedy(url)) from error


def _context(address: Address) -> ssl.SSLContext | None:
    if not encrypts(address.url):
        return None
    trusted = trust(address)
    return trusted if isinstance(trusted, ssl.SSLContext) else ssl.create_default_context()
