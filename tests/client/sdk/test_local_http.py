"""Requests to a server of this machine, which go without httpx2."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict
from typing import BinaryIO

import httpx2
import pytest

from millpond.client.sdk import Client
from millpond.client.sdk.transport.discovery import Address
from millpond.client.sdk.transport.local_http import LocalAnswer, LocalHttp, query_text
from millpond.model.errors import ConflictError, InvalidInputError, UnavailableError

CUT_OFF = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"


def answer(status: str, body: str) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


class Listener:
    """Answers each request with what comes next; an empty answer closes the connection after it has been asked.

    Attributes:
        heads: the first lines and headers of all requests.
        connections: how many were made.
    """

    def __init__(self) -> None:
        self.answers: list[bytes] = []
        self.heads: list[str] = []
        self.bodies: list[bytes] = []
        self.connections = 0
        self.closes_after = False
        self.closed = threading.Semaphore(0)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as file:
            while self._answer(connection, file):
                pass
        self.closed.release()

    def _answer(self, connection: socket.socket, file: BinaryIO) -> bool:
        lines = []
        while (line := file.readline()) not in (b"\r\n", b""):
            lines.append(line.decode())
        if not lines:
            return False
        self.heads.append("".join(lines))
        length = next((int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length")), 0)
        self.bodies.append(file.read(length))
        given = self.answers.pop(0)
        connection.sendall(given)
        return given not in (b"", CUT_OFF) and not self.closes_after


@pytest.fixture
def listener() -> Iterator[Listener]:
    listener = Listener()
    yield listener
    listener.close()


@pytest.fixture
def client(listener: Listener) -> Iterator[Client]:
    with Client(listener.url, "secret", timeout_s=60.0) as client:
        yield client


def test_requests_share_a_connection_and_carry_token_and_body(client, listener, make_job):
    listener.answers = [answer("200 OK", json.dumps(asdict(make_job())))] * 2

    assert client.job("train-abcde").state == "running"
    client.resize("train-abcde", 3)

    assert listener.connections == 1
    assert listener.heads[0].startswith("GET /api/v1/jobs/train-abcde HTTP/1.1\r\n")
    assert "Authorization: Bearer secret\r\n" in listener.heads[0]
    assert "Content-Type: application/json\r\n" in listener.heads[1]
    assert b'"tasks":3' in listener.bodies[1]


def test_a_connection_that_the_server_has_closed_meanwhile_is_not_used_again(client, listener, make_job):
    listener.closes_after = True
    listener.answers = [answer("200 OK", json.dumps(asdict(make_job())))] * 2

    client.job("train-abcde")
    listener.closed.acquire()
    client.job("train-abcde")

    assert listener.connections == 2


def test_refusals_are_the_servers_own(client, listener):
    listener.answers = [answer("409 Conflict", '{"error": {"cause": "it has ended", "remedy": "submit it again"}}')]

    with pytest.raises(ConflictError, match="it has ended") as caught:
        client.stop("train-abcde")

    assert caught.value.remedy == "submit it again"


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.job("tr\udcffin"),
        lambda client: client.jobs(name="tr\udcffin"),
        lambda client: client.submit({"command": "true", "env": {"A": "tr\udcffin"}}),
    ],
)
def test_a_text_that_is_not_utf_8_is_refused_by_its_wrong_byte_before_anything_is_sent(client, listener, ask):
    with pytest.raises(InvalidInputError, match=r"not UTF-8 \(it has \\xff\)"):
        ask(client)

    assert not listener.heads


@pytest.mark.parametrize("lost", [b"", CUT_OFF])
def test_a_submission_whose_answer_was_lost_is_repeated_with_the_same_key(client, listener, make_job, lost):
    listener.answers = [lost, answer("201 Created", json.dumps(asdict(make_job())))]

    assert client.submit({"command": ["true"]}).id == make_job().id

    first, second = ([line for line in head.splitlines() if "Idempotency" in line] for head in listener.heads)
    assert first == second != []


def test_other_requests_whose_answer_was_lost_are_not(client, listener):
    listener.answers = [b""]

    with pytest.raises(UnavailableError, match="broke"):
        client.stop("train-abcde")

    assert len(listener.heads) == 1


def test_where_nothing_listens_the_error_says_so():
    with socket.socket() as silent:  # it has the port, so that no other program listens there
        silent.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with Client(url, "secret") as client, pytest.raises(UnavailableError, match="no Millpond server answers"):
            client.job("train-abcde")


def test_silence_is_an_error_in_time(listener):
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        Client(f"http://127.0.0.1:{silent.getsockname()[1]}", "secret", timeout_s=0.05) as client,
        pytest.raises(UnavailableError, match="did not answer in time"),
    ):
        client.job("train-abcde")


def test_a_request_may_have_its_own_time_on_a_new_and_on_a_kept_connection(listener):
    http = LocalHttp(Address(listener.url, "secret"), 60.0)
    begun = b"HTTP/1.1 200 OK\r\n"
    listener.answers += [begun, answer("200 OK", "{}"), begun]
    with pytest.raises(TimeoutError):
        http.request("GET", "/slow", timeout=0.05)
    assert http.request("GET", "/quick").content == b"{}"
    with pytest.raises(TimeoutError):
        http.request("GET", "/slow", timeout=0.05)
    assert listener.connections == 2


def test_a_plan_is_waited_for_longer_than_other_answers(client, monkeypatch):
    given = []
    monkeypatch.setattr(LocalHttp, "request", lambda *_, **request: given.append(request) or LocalAnswer(200, b"{}"))
    with pytest.raises(UnavailableError, match="not understood"):
        client.plan({})
    assert given[0]["timeout"] == 60.0


@pytest.mark.parametrize(
    "params", [None, {}, {"a": True, "b": False}, {"c": 1.5, "d": "x y/ü&"}, {"e": None}, {"f": [1, 2]}]
)
def test_parameters_are_written_as_httpx_writes_them(params):
    assert query_text(params).removeprefix("?") == str(httpx2.QueryParams(params))


ASKING = ("inspection.ps", "inspection.why", "inspection.get", "cluster.nodes", "cluster.queue", "control.jobs")


@pytest.mark.parametrize(
    ("command", "nor"), [*((command, "yaml") for command in ASKING), ("submission.run", "pathspec")]
)
def test_a_command_that_asks_a_local_server_loads_neither_httpx_nor_pydantic(command, nor):
    loads = f"import sys, {LocalHttp.__module__}, millpond.client.cli.commands.{command}"
    check = f"{loads}; assert sys.modules.keys().isdisjoint(['httpx2', 'pydantic', 'rich', '{nor}'])"

    subprocess.run([sys.executable, "-c", check], check=True)


def test_a_process_that_was_forked_leaves_the_connections_of_the_other_alone(client, listener, make_job):
    listener.answers = [answer("200 OK", json.dumps(asdict(make_job())))] * 3
    client.job("train-abcde")
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            client.job("train-abcde")
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    client.job("train-abcde")
    assert listener.connections == 2
