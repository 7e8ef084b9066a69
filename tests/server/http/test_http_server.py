"""The HTTP server on a real socket, asked by clients that are slow, silent or never done."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import pytest
from websockets.exceptions import InvalidStatus
from websockets.server import ServerProtocol
from websockets.sync.client import connect

from certificates import make_certificate
from millpond.server.http import connections, held_messages
from millpond.server.http import server as http
from millpond.server.http.connections import Connections
from millpond.server.http.listener import listen
from millpond.server.http.protocol import LARGEST_HEAD, LARGEST_LEFTOVER
from millpond.server.http.server import PLAIN, HttpOptions, HttpServer
from millpond.server.http.tls import Encryption
from millpond.server.http.websocket_protocol import PIECE

T = TypeVar("T")
SOON_S = 30.0
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
WEBSOCKET_REQUEST = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
PING = b"\x89\x80\0\0\0\0"
BAD_TEXT = b"\x01\x81\0\0\0\0\xff" + b"\x80\x80\0\0\0\0"


async def answer_all(scope: Any, receive: Any, send: Any) -> None:
    """Answer at once, and read nothing of a body; ``/whole`` reads it and tells the headers."""
    if scope["type"] == "websocket":
        await receive()
        if scope["path"] == "/refused":
            await send({"type": "websocket.http.response.start", "status": 404, "headers": []})
            await send({"type": "websocket.http.response.body", "body": b"no"})
            return
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": str(len(message["bytes"]))})
        return
    told = b"ok"
    if scope["path"] == "/half":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        return
    if scope["path"] == "/left":
        while (await receive())["type"] != "http.disconnect":
            pass
    if scope["path"] == "/whole":
        while (await receive()).get("more_body"):
            pass
        told = b",".join(name for name, _ in scope["headers"])
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(told))]})
    await send({"type": "http.response.body", "body": told})


def while_serving(
    visit: Callable[[int], T], options: HttpOptions = PLAIN, on_hangup: Callable[[], None] = lambda: None
) -> T:
    """What a visit to a server comes to; it is given the port. The server has this thread, for its signals."""
    listener = listen("127.0.0.1", 0)
    visits: list[Future[T]] = []
    with ThreadPoolExecutor(1) as pool:

        def ready() -> None:
            visits.append(pool.submit(visit, listener.getsockname()[1]))
            visits[0].add_done_callback(lambda _visit: server.stop())

        server = HttpServer(answer_all, ready, lambda: None, on_hangup, options)
        server.run(listener)
        return visits[0].result()


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), SOON_S)


def all_of(client: socket.socket) -> bytes:
    """What comes until the server closes."""
    pieces = []
    try:
        while piece := client.recv(65_536):
            pieces.append(piece)
    except ConnectionResetError:
        pass
    return b"".join(pieces)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_WITHIN_S", 0.3)


def answers_to(port: int, beginnings: Sequence[bytes]) -> list[bytes]:
    """What comes for each beginning of a request until the server closes; all wait at the same time."""
    with contextlib.ExitStack() as connections:
        clients = [connections.enter_context(connected(port)) for _ in beginnings]
        for client, begun in zip(clients, beginnings, strict=True):
            client.sendall(begun)
        return [all_of(client) for client in clients]


def test_idle_connections_are_kept_for_longer_than_our_client_keeps_them_so_that_no_request_meets_their_end():
    server = HttpServer(answer_all, lambda: None, lambda: None, lambda: None)
    kept_by_clients_s = httpx2.Limits().keepalive_expiry
    assert kept_by_clients_s is not None
    assert server._server.config.timeout_keep_alive > kept_by_clients_s


@pytest.mark.usefixtures("impatient")
def test_a_request_that_is_never_complete_is_given_up():
    beginnings = (b"", b"\r\n", b"GET", b"GET / HTTP/1.1\r\nHost: x\r\n", REQUEST + b"GET /")
    answers = while_serving(lambda port: answers_to(port, beginnings))
    assert [answer.count(b"HTTP/1.1 200") for answer in answers] == [0, 0, 0, 0, 1]


@pytest.fixture
def encrypted(tmp_path: Path) -> HttpOptions:
    certificate, key = make_certificate(tmp_path, name="127.0.0.1", days=2)
    return HttpOptions(Encryption(certificate, key).context)


@pytest.mark.usefixtures("impatient")
def test_half_a_tls_handshake_is_given_up(encrypted: HttpOptions):
    beginnings = (b"", b"\x16\x03\x01", b"\x16\x03\x01\x02\x00\x01", REQUEST, b"\x16\x03\x01\x00\x01\x01")
    answers = while_serving(lambda port: answers_to(port, beginnings), encrypted)
    assert not [answer for answer in answers if b"HTTP" in answer]


def test_a_whole_tls_handshake_is_served_though_others_never_end_theirs(encrypted: HttpOptions):
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE

    def visit(port: int) -> bytes:
        with connected(port), trusting.wrap_socket(connected(port)) as client:
            client.sendall(REQUEST)
            return client.recv(65_536)

    assert while_serving(visit, encrypted).startswith(b"HTTP/1.1 200")


def test_headers_without_end_are_refused():
    def visit(port: int) -> bytes:
        with connected(port) as client:
            client.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * LARGEST_HEAD)
            return all_of(client)

    assert while_serving(visit).startswith(b"HTTP/1.1 400")


def test_a_request_that_names_two_hosts_is_refused():
    def visit(port: int) -> bytes:
        with connected(port) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nhost: y\r\n\r\n")
            return all_of(client)

    assert while_serving(visit).startswith(b"HTTP/1.1 400")


def test_a_body_that_nobody_reads_is_not_taken_without_end_and_the_answer_arrives():
    def visit(port: int) -> bytes:
        with connected(port) as client:
            client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n")
            answer = client.recv(65_536)
            with pytest.raises(OSError, match=r"reset|[Bb]roken pipe"):
                client.sendall(b"x" * (100 * LARGEST_LEFTOVER))
            return answer

    assert while_serving(visit).startswith(b"HTTP/1.1 200")


def test_a_client_that_leaves_several_requests_behind_leaves_no_error(caplog: pytest.LogCaptureFixture):
    def visit(port: int) -> None:
        with connected(port) as client:
            client.sendall(REQUEST.replace(b"/", b"/left", 1) + REQUEST)

    while_serving(visit)
    assert caplog.text == ""


IN_CHUNKS = b"POST /whole HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"


def test_an_answer_that_is_broken_off_has_no_end_and_is_no_error(caplog: pytest.LogCaptureFixture):
    caplog.set_level("ERROR")
    answered = while_serving(lambda port: answers_to(port, [REQUEST.replace(b"/ ", b"/half ")]))[0]
    assert answered.endswith(b"4\r\nhalf\r\n")
    assert not caplog.records


@pytest.mark.parametrize("begun", [b"0\r\nX: ", b"0\r\nX: a\r\n" * 2, b"2;", b"0;"])
def test_what_comes_behind_a_body_without_end_is_broken_off(begun: bytes):
    def visit(port: int) -> None:
        with connected(port) as client:
            client.sendall(IN_CHUNKS + begun)
            with pytest.raises(OSError, match=r"reset|[Bb]roken pipe"):
                client.sendall(b"x" * (1_000 * LARGEST_HEAD))

    while_serving(visit)


def test_what_comes_behind_a_body_is_no_header_and_many_small_chunks_are_a_body():
    def visit(port: int) -> bytes:
        with connected(port) as client:
            client.sendall(IN_CHUNKS + b"1\r\nx\r\n" * LARGEST_HEAD + b"0\r\nX-Forwarded-For: 1.2.3.4\r\n\r\n")
            return all_of(client)

    assert while_serving(visit).endswith(b"\r\n\r\nhost,connection,transfer-encoding")


def test_a_websocket_that_ended_is_no_connection_any_more(monkeypatch):
    kept: list[Connections] = []

    class Watched(Connections):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            kept.append(self)

    monkeypatch.setattr(http, "Connections", Watched)

    def visit(port: int) -> None:
        with connect(f"ws://127.0.0.1:{port}/"):
            assert len(kept[0]._networks) == 1
            assert not kept[0]._waiting

    while_serving(visit)
    assert not kept[0]._networks


@pytest.mark.long
def test_a_turn_of_the_event_loop_parses_a_piece_of_what_a_websocket_sends_and_no_message_is_lost(monkeypatch):
    pieces = []
    parse = ServerProtocol.receive_data
    monkeypatch.setattr(
        ServerProtocol, "receive_data", lambda self, data: (pieces.append(len(data)), parse(self, data))
    )

    def visit(port: int) -> list[Any]:
        with connect(f"ws://127.0.0.1:{port}/") as client:
            client.send([b""] * 20_000)
            client.send([b"x" * 100_000, b"x"])
            for _ in range(3):
                client.send(b"xy")
            return [client.recv() for _ in range(5)]

    assert while_serving(visit) == ["0", "100001", "2", "2", "2"]
    assert max(pieces) <= PIECE


def test_messages_that_never_end_are_broken_off_where_they_are_too_much_together(monkeypatch):
    monkeypatch.setattr(held_messages, "MOST_HELD_BYTES", 100_000)

    def visit(port: int) -> tuple[str | bytes, bytes]:
        with connected(port) as endless, connect(f"ws://127.0.0.1:{port}/") as client:
            endless.sendall(WEBSOCKET_REQUEST)
            assert endless.recv(65_536).startswith(b"HTTP/1.1 101")
            endless.sendall(b"\x02\xff" + (60_000).to_bytes(8, "big") + bytes(4 + 60_000) + PING)
            assert endless.recv(2) == b"\x8a\x00", "all was received"
            client.send(b"x" * 90_000)
            return client.recv(), all_of(endless)

    assert while_serving(visit) == ("90000", b"")


@pytest.mark.parametrize("then", [b"", BAD_TEXT, b"\x88\x80\0\0\0\0"], ids=["alone", "again", "close"])
def test_text_that_is_no_utf_8_ends_its_websocket_and_is_no_defect_of_the_server(caplog, then):
    def visit(port: int) -> bytes:
        with connected(port) as client:
            client.sendall(WEBSOCKET_REQUEST)
            assert client.recv(65_536).startswith(b"HTTP/1.1 101")
            client.sendall(BAD_TEXT + then)
            return all_of(client)

    assert while_serving(visit) in (b"\x88\x0f\x03\xeftext is UTF-8", b"\x88\0")
    assert not caplog.records


def test_what_opens_a_websocket_wrongly_is_answered_and_not_left_waiting():
    def visit(port: int) -> bytes:
        with connected(port) as client:
            client.sendall(WEBSOCKET_REQUEST.replace(b"Host: x", b"Host: x\r\nContent-Length: 5") + b"hello")
            return all_of(client)

    assert while_serving(visit).startswith(b"HTTP/1.1 400")


def test_a_websocket_that_is_answered_without_being_opened_is_no_error(caplog):
    def visit(port: int) -> int:
        with pytest.raises(InvalidStatus) as refused, connect(f"ws://127.0.0.1:{port}/refused"):
            pass
        return refused.value.response.status_code

    assert while_serving(visit) == 404
    assert not caplog.records


def test_signals_to_read_again_are_followed_one_after_the_other_and_past_a_defect() -> None:
    read: list[int] = []
    begun, go_on, again = threading.Event(), threading.Event(), threading.Event()

    def read_again() -> None:
        read.append(0)
        begun.set()
        if len(read) == 1:
            assert go_on.wait(SOON_S)
            raise ValueError("a defect")
        again.set()

    def visit(port: int) -> bytes:
        os.kill(os.getpid(), signal.SIGHUP)
        assert begun.wait(SOON_S)
        for _ in range(20):
            os.kill(os.getpid(), signal.SIGHUP)
            with connected(port) as client:  # answered, so the signal has been heard
                client.sendall(REQUEST)
                assert client.recv(100).startswith(b"HTTP/1.1 200")
        assert len(read) == 1
        go_on.set()
        assert again.wait(SOON_S)
        with connected(port) as client:
            client.sendall(REQUEST)
            return client.recv(100)

    assert while_serving(visit, on_hangup=read_again).startswith(b"HTTP/1.1 200")
    assert len(read) == 2


@pytest.fixture
def heard() -> Iterator[list[int]]:
    """Which signals came to what hears them before and after a server."""
    came: list[int] = []
    numbers = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda number, _frame: came.append(number)) for number in numbers}
    yield came
    for number, handler in before.items():
        signal.signal(number, handler)


def test_what_goes_on_after_its_server_was_stopped_is_ended_by_signals_and_not_by_a_hangup(heard: list[int]) -> None:
    while_serving(lambda _port: None)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.raise_signal(number)
    assert heard == [signal.SIGINT, signal.SIGTERM]


def test_after_a_server_that_a_signal_ended_no_other_cuts_the_end_of_the_process_short(heard: list[int]) -> None:
    def visit(port: int) -> bytes:
        with connected(port) as client:
            os.kill(os.getpid(), signal.SIGTERM)
            return all_of(client)

    assert while_serving(visit) == b""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.raise_signal(number)
    assert not heard
