"""Commands inside jobs, as programs reach them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from websockets.exceptions import ConnectionClosedError, ConnectionClosedOK

from millpond.client.sdk import sessions
from millpond.client.sdk.sessions import Order, Session
from millpond.client.sdk.transport.discovery import Address
from millpond.model.errors import UnavailableError


class Socket:
    """A connection on which these come one after the other; errors are raised."""

    def __init__(self, *comes: bytes | str | Exception) -> None:
        self._comes: Iterator[bytes | str | Exception] = iter(comes)
        self.waited: list[float | None] = []

    def send(self, message: bytes | str) -> None: ...

    def recv(self, timeout: float | None = None) -> bytes | str:
        self.waited.append(timeout)
        found = next(self._comes)
        if isinstance(found, Exception):
            raise found
        return found


def session_on(socket: Socket, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setattr(sessions, "_open", lambda *_: socket)
    return Session(Address("http://127.0.0.1:1", ""), "j", 0, Order(()))


def test_output_is_waited_for_a_while_at_a_time_so_that_a_signal_is_never_waited_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = ConnectionClosedOK(None, None)
    socket = Socket(b"\x01a", TimeoutError(), TimeoutError(), b"\x02b", json.dumps({"exit": 3}), ended)
    session = session_on(socket, monkeypatch)
    assert list(session.output()) == [("output", b"a"), ("errors", b"b")]
    assert session.exit_code == 3
    assert None not in socket.waited


def test_a_connection_that_is_cut_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_on(Socket(b"\x01a", ConnectionClosedError(None, None)), monkeypatch)
    with pytest.raises(UnavailableError, match="the connection to the server was lost"):
        list(session.output())
