"""Requests and their bodies on the way to a program."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress

import pytest
from starlette.types import Message, Scope

from millpond.engines.task_access import ServingPlace
from millpond.node.task.records import TaskId
from millpond.server.serving.proxy.requests import BrokenAnswerError, ProxiedRequest, RequestRelay
from millpond.server.sessions.task_routes import ADDRESS, TaskNetwork, TaskRoute

ANSWER = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\nX-Own: yes\r\n\r\nok"


class Listening:
    """Tasks whose ports are this machine's."""

    def serving(self, task: TaskId) -> ServingPlace | None:
        raise NotImplementedError

    async def open_session(self, task: TaskId) -> socket.socket:
        raise NotImplementedError

    async def connect(self, task: TaskId, port: int, within_s: float | None) -> socket.socket:
        connection = socket.create_connection((ADDRESS, port))
        connection.setblocking(False)
        return connection


async def passed_on(
    headers: list[tuple[bytes, bytes]],
    body: tuple[bytes, ...],
    ends_with: bytes,
    *,
    holds: bool = True,
    answer: bytes = ANSWER,
) -> tuple[bytes, list[Message]]:
    """What a program is sent, and what the client gets of its answer."""
    seen = b""

    async def program(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal seen
        seen = await reader.readuntil(ends_with)
        writer.write(answer)
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(program, ADDRESS, 0)
    port = listener.sockets[0].getsockname()[1]
    parts = [{"type": "http.request", "body": part, "more_body": True} for part in body[:-1]]
    parts.append({"type": "http.request", "body": body[-1], "more_body": False})
    got: list[Message] = []

    async def receive() -> Message:
        return parts.pop(0) if parts else await asyncio.Future()

    async def send(message: Message) -> None:
        got.append(message)

    scope: Scope = {"type": "http", "method": "POST", "headers": headers}
    kept = [(name, value) for name, value in headers if name != b"transfer-encoding"]
    access = Listening()
    route = TaskRoute(TaskId("j", 1, 0), port, access)
    target = ProxiedRequest(route, b"/a%2Fb?x", kept, "/proxy/j", False, "/proxy/j-abcde")
    async with listener:
        await RequestRelay(TaskNetwork(access)).relay(scope, receive, send, target, lambda: holds)
    return seen, got


@pytest.mark.parametrize(
    ("header", "sent", "head", "ends_with"),
    [
        ((b"content-length", b"5"), b"hello", b"content-length: 5", b"hello"),
        (
            (b"transfer-encoding", b"chunked"),
            b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
            b"transfer-encoding: chunked",
            b"\r\n0\r\n\r\n",
        ),
    ],
)
def test_a_body_arrives_whole_whether_or_not_its_length_was_known(
    header: tuple[bytes, bytes], sent: bytes, head: bytes, ends_with: bytes
) -> None:
    headers = [(b"host", b"pool.test"), header]
    seen, got = asyncio.run(passed_on(headers, (b"he", b"llo"), ends_with))
    above, _, body = seen.partition(b"\r\n\r\n")
    assert above.startswith(b"POST /a%2Fb?x HTTP/1.1\r\n")
    assert b"host: pool.test" in above
    assert head in above.lower()
    assert body == sent
    assert got[0]["status"] == 201
    assert (b"x-own", b"yes") in got[0]["headers"]
    assert b"".join(message.get("body", b"") for message in got) == b"ok"


@pytest.mark.parametrize(
    ("said", "seen"), [(b"/items/", b"/proxy/j/items/"), (b"/proxy/j-abcde/items/", b"/proxy/j-abcde/items/")]
)
def test_a_redirect_of_the_program_to_the_servers_own_address_leads_to_the_program(said: bytes, seen: bytes) -> None:
    answer = ANSWER.replace(b"X-Own: yes", b"Location: http://pool.test" + said)
    headers = [(b"host", b"pool.test"), (b"content-length", b"1")]
    _, got = asyncio.run(passed_on(headers, (b"x",), b"x", answer=answer))
    assert (b"location", seen) in got[0]["headers"]


@pytest.mark.parametrize("status", [b"600 Odd", b"999 Odd"])
def test_a_status_that_is_none_is_said_to_be_the_programs_fault(status: bytes) -> None:
    answer = ANSWER.replace(b"201 Created", status)
    with pytest.raises(BrokenAnswerError, match=f"answered with status {status[:3].decode()}"):
        asyncio.run(passed_on([(b"content-length", b"1")], (b"x",), b"x", answer=answer))


def test_a_program_that_breaks_its_answer_off_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    _, got = asyncio.run(passed_on([], (b"",), b"\r\n\r\n", answer=ANSWER.replace(b"Length: 2", b"Length: 9")))
    assert [message.get("body") for message in got] == [None, b"ok"]
    assert "the program of j broke its answer off" in caplog.text


def test_a_header_with_a_control_character_is_said_to_be_the_programs_fault() -> None:
    with pytest.raises(BrokenAnswerError, match="answered with a control character in x-own"):
        asyncio.run(passed_on([], (b"",), b"\r\n\r\n", answer=ANSWER.replace(b"yes", b"y\x01")))


@pytest.mark.parametrize(
    ("head", "content"),
    [
        (b"204 No Content\r\nContent-Length: 5", b""),
        (b"304 Not Modified\r\nContent-Length: 5", b""),
        (b"200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked", b"2\r\nok\r\n0\r\n\r\n"),
    ],
)
def test_a_length_that_is_not_that_of_the_content_is_not_passed_on(head: bytes, content: bytes) -> None:
    _, got = asyncio.run(passed_on([], (b"",), b"\r\n\r\n", answer=b"HTTP/1.1 " + head + b"\r\n\r\n" + content))
    assert got[0]["headers"] == []
    assert got[-1] == {"type": "http.response.body", "body": b""}


def test_an_answer_is_broken_off_when_its_reader_may_no_longer_read_it() -> None:
    _, got = asyncio.run(passed_on([(b"content-length", b"1")], (b"x",), b"x", holds=False))
    assert [message["type"] for message in got] == ["http.response.start"]


def test_a_request_whose_host_is_taken_away_gets_one() -> None:
    seen, _ = asyncio.run(passed_on([(b"content-length", b"1")], (b"x",), b"\r\n\r\n"))
    assert b"host: 127.0.0.1" in seen


async def statuses(
    program: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]], methods: list[str]
) -> list[int]:
    """What one relay gets of a program for these requests, one after the other, up to the first that fails."""
    got: list[int] = []

    async def receive() -> Message:
        return await asyncio.Future()

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            got.append(message["status"])

    access = Listening()
    relay = RequestRelay(TaskNetwork(access))
    # Closed, and not waited for: from Python 3.12 on that ends with the last connection, and the relay keeps one.
    with closing(await asyncio.start_server(program, ADDRESS, 0)) as listener:
        port = listener.sockets[0].getsockname()[1]
        target = ProxiedRequest(TaskRoute(TaskId("j", 1, 0), port, access), b"/", [], "/proxy/j", False, "/proxy/j")
        with suppress(BrokenAnswerError):
            for method in methods:
                scope: Scope = {"type": "http", "method": method, "headers": []}
                await relay.relay(scope, receive, send, target, lambda: True)
    return got


@pytest.mark.parametrize(
    ("method", "hangs_up_on", "answers", "connections"),
    [("GET", [2], 2, 2), ("GET", [1], 0, 1), ("GET", [2, 3], 1, 2), ("POST", [2], 1, 1)],
    ids=["safe, kept", "safe, new", "safe, kept and then new", "not safe"],
)
def test_what_is_safe_to_ask_twice_goes_over_a_new_connection_when_a_kept_one_turns_out_to_be_closed(
    method: str, hangs_up_on: list[int], answers: int, connections: int
) -> None:
    """A program that closes its connection at the n-th requests, without an answer: as if it had before."""
    made = asked = 0

    async def program(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal made, asked
        made += 1
        while True:
            await reader.readuntil(b"\r\n\r\n")
            asked += 1
            if asked in hangs_up_on:
                writer.close()
                return
            writer.write(ANSWER)

    assert asyncio.run(statuses(program, [method] * 2)) == [201] * answers
    assert made == connections


PLANTED = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.parametrize(
    ("method", "answers"),
    [
        ("GET", [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" + PLANTED, ANSWER]),
        ("GET", [b"HTTP/1.1 204 No Content\r\n\r\n" + PLANTED, ANSWER]),
        ("GET", [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + PLANTED, ANSWER]),
        ("HEAD", [b"HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n" + PLANTED, ANSWER]),
        ("HEAD", [b"HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n", PLANTED + ANSWER]),
    ],
    ids=["beyond a length", "without content", "after chunks", "to HEAD", "to HEAD, after the next request"],
)
def test_what_a_program_sends_beyond_an_answer_is_never_the_answer_to_the_next_request(
    method: str, answers: list[bytes]
) -> None:
    connections = 0

    async def program(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        with suppress(asyncio.IncompleteReadError):
            for answer in answers if connections == 1 else [ANSWER]:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(answer)

    assert asyncio.run(statuses(program, [method, "GET"]))[1] == 201
    assert connections == 2
