"""Clients at a WebSocket who break the rules, or are not told how it ended."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import pytest
from starlette.websockets import WebSocket

from millpond.engines.task_access import TaskAccess, TaskUnreachedError
from millpond.model.errors import UnavailableError
from millpond.node.task.records import TaskId
from millpond.server.api.routes.interactive import serve_session
from millpond.server.monitoring.activity import Activity
from millpond.server.sessions import relay as sessions
from millpond.server.sessions.task_routes import TaskRoute
from millpond.server.sessions.websockets import relay_command, relay_port

OPEN, GONE = {"type": "websocket.connect"}, {"type": "websocket.disconnect", "code": 1006}


class OneConnection:
    """Access to the only program there is."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    async def connect(self, _task: TaskId, _port: int, _within_s: float | None) -> socket.socket:
        return self._connection


def served(
    messages: Sequence[dict[str, Any]], relay: Callable[[WebSocket, socket.socket], Awaitable[None]]
) -> tuple[list[str], bytes]:
    """What a client is sent who sends these messages and then nothing, and what its command or program gets of it."""
    sent: list[dict[str, Any]] = []
    ours, theirs = socket.socketpair()

    async def run() -> None:
        waiting = asyncio.Queue[dict[str, Any]]()
        for message in (OPEN, *messages):
            waiting.put_nowait(message)

        async def send(message: Any) -> None:
            if sent and GONE in messages:
                raise OSError
            sent.append(message)

        client = WebSocket({"type": "websocket", "path": "/", "headers": []}, waiting.get, send)
        await serve_session(client, Activity(lambda: 0.0), "job-1", lambda: relay(client, ours))

    ours.setblocking(False)
    with ours, theirs:
        if not messages:
            theirs.shutdown(socket.SHUT_WR)
        asyncio.run(run())
        ours.close()
        got = theirs.recv(100)
    return [message.get("text") or message["type"] for message in sent], got


def allowed() -> bool:
    return True


async def to_port(client: WebSocket, connection: socket.socket, still_may: Callable[[], bool] = allowed) -> None:
    way = TaskRoute(TaskId("job-1", 1, 0), 80, cast(TaskAccess, OneConnection(connection)))
    await relay_port(client, way, lambda: None, still_may)


async def to_command(client: WebSocket, connection: socket.socket, still_may: Callable[[], bool] = allowed) -> None:
    await relay_command(client, connection, lambda: None, still_may)


def test_who_sends_more_behind_the_end_of_the_input_is_told() -> None:
    end = {"type": "websocket.receive", "text": '{"eof": true}'}
    sent, got = served([{"type": "websocket.receive", "bytes": b"all"}, end, end], to_port)
    assert got == b"all"
    assert json.loads(sent[1])["error"] == "there is a message behind the end of the input"
    assert sent[2] == "websocket.close"


def test_a_command_of_which_nothing_says_how_it_ended_is_an_error() -> None:
    sent, _ = served([], to_command)
    assert json.loads(sent[1])["error"] == "the task has no place for the command, or has just ended"
    assert "64 may at once" in json.loads(sent[1])["remedy"]


def test_where_a_task_is_not_reached_a_client_is_not_told_to_wait_for_its_program() -> None:
    async def forbidden(*_asked: object) -> socket.socket:
        raise TaskUnreachedError("pod p cannot be entered: forbidden", "`pond kube check`")

    async def relay(client: WebSocket, connection: socket.socket) -> None:
        access = OneConnection(connection)
        access.connect = forbidden  # type: ignore[method-assign]
        await relay_port(client, TaskRoute(TaskId("job-1", 1, 0), 80, cast(TaskAccess, access)), lambda: None, allowed)

    sent, _ = served([OPEN], relay)
    said = json.loads(sent[1])
    assert (said["error"], said["remedy"]) == ("pod p cannot be entered: forbidden", "`pond kube check`")


def test_a_client_that_is_gone_before_its_error_is_no_fault_of_the_server() -> None:
    async def fail(_client: WebSocket, _connection: socket.socket) -> None:
        raise UnavailableError("the task has ended", "submit it again")

    assert served([GONE], fail) == (["websocket.accept"], b"")


@pytest.mark.parametrize("relay", [to_port, to_command])
def test_a_session_ends_with_its_users_rights_though_nothing_passes_through_it(
    relay: Callable[..., Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "LOOK_EVERY_S", 0.0)
    said, answers = {"type": "websocket.receive", "bytes": b"all"}, [True, True, False]
    sent, got = served([said], lambda client, connection: relay(client, connection, lambda: answers.pop(0)))
    assert got == b"all"
    assert "has ended" in json.loads(sent[1])["error"]
    assert answers == []
