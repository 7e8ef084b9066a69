"""Commands beside tasks and ports of tasks, for clients at a WebSocket.

Text messages are JSON and say something about the stream, binary messages are the stream; ``node.sessions.session``
says which there are for a command. For a port the stream is bare, and only ``{"eof": true}`` and ``{"error": ..}``
occur.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from typing import Final

from starlette.websockets import WebSocket, WebSocketDisconnect

from millpond.engines.task_access import TaskAccess
from millpond.model.errors import ConflictError, InvalidInputError, NotAllowedError, NotFoundError, UnavailableError
from millpond.model.states import JobState, TaskState
from millpond.node.sessions.exec_sessions import MOST_AT_ONCE
from millpond.node.sessions.session import LARGEST_MESSAGE
from millpond.node.task.records import TaskId
from millpond.server.runtime.active_jobs.array import array_named
from millpond.server.sessions.relay import keep_asking, until_one_ends
from millpond.server.sessions.task_routes import TaskRoute
from millpond.specs.api.jobs.jobs import JobInfo

MOST_SESSIONS: Final = 256
"""Commands and connections of one user: all others share the threads that look for the programs behind them."""
_BLOCK: Final = 65_536
_TAKEN_WITHIN_S: Final = 5.0
_LAST_PORT: Final = 65_535
_BROKEN_OFF: Final = (ConnectionError, WebSocketDisconnect)
"""How a connection may end besides being closed."""


def running_task(job: JobInfo, number: int) -> TaskId:
    """The present run of a job's task.

    Raises:
        NotFoundError: it has no such task.
        ConflictError: that does not run now.
        InvalidInputError: it is an array.
    """
    task = next((task for task in job.tasks if task.task == number), None)
    if job.array is not None:
        raise array_named(job.id, job.array)
    if task is None:
        raise NotFoundError(f"job {job.id} has no task {number}", f"its tasks are 0 to {len(job.tasks) - 1}")
    if task.state != TaskState.RUNNING:
        hint = "let it go on first" if task.state in (TaskState.FROZEN, TaskState.SWAPPED) else "wait until it runs"
        if JobState(job.state).ended:
            hint = "submit it again with `pond clone`"
        raise ConflictError(f"task {number} of job {job.id} is {task.state}", hint)
    return TaskId(job.id, job.attempt, number)


async def relay_command(
    client: WebSocket, connection: socket.socket, on_input: Callable[[], None], still_may: Callable[[], bool]
) -> None:
    """Pass messages on between a client and its command, until either is done.

    Args:
        still_may: asked before each message is passed on, and every few seconds.

    Raises:
        NotAllowedError: the client no longer may; its command is ended like that of a client that leaves.
        InvalidInputError: a message is too large, or empty.
        UnavailableError: the place of the command was closed without a word of how it ended.
    """
    loop = asyncio.get_running_loop()

    async def to_command() -> None:
        while True:
            message = await client.receive()
            if message["type"] == "websocket.disconnect":
                return
            data = message.get("bytes")
            data = message["text"].encode() if data is None else data
            if not 0 < len(data) <= LARGEST_MESSAGE:
                raise InvalidInputError(f"a message of {len(data)} bytes", f"send 1 to {LARGEST_MESSAGE}")
            _require(still_may)
            on_input()
            await loop.sock_sendall(connection, data)

    async def to_client() -> None:
        while data := await _received(connection):
            _require(still_may)
            if data[:1] == b"{":
                await client.send_text(data.decode())
                return
            await client.send_bytes(data)
        cause = "the task has no place for the command, or has just ended"
        raise UnavailableError(cause, f"try again once fewer commands run there: {MOST_AT_ONCE} may at once")

    with connection, suppress(*_BROKEN_OFF):
        await until_one_ends(to_command(), to_client(), keep_asking(partial(_require, still_may)))


async def _received(connection: socket.socket) -> bytes:
    """The next message of a command's place; empty when that is closed, with or without something unread in it."""
    with suppress(ConnectionError):
        return await asyncio.get_running_loop().sock_recv(connection, LARGEST_MESSAGE)
    return b""


def way_to_port(access: TaskAccess, task: TaskId, port: int) -> TaskRoute:
    """How a port of a task is reached, at which its own programs listen; 0 is where it is to serve.

    Raises:
        ConflictError: it was given none, or runs no more.
        InvalidInputError: it is none.
    """
    place = access.serving(task)
    what = f"task {task.task} of job {task.job}"
    if place is None:
        raise ConflictError(f"{what} runs no more", "start it once more with `pond clone`")
    if not 0 <= port <= _LAST_PORT:
        raise InvalidInputError(f"{port} is no port", f"use 1 to {_LAST_PORT}")
    wanted = port or place.port
    if wanted is None:
        raise ConflictError(f"{what} has no port of its own", "name one: LOCAL:REMOTE")
    return TaskRoute(task, wanted, access)


async def relay_port(
    client: WebSocket, way: TaskRoute, on_input: Callable[[], None], still_may: Callable[[], bool]
) -> None:
    """Pass bytes on between a client and a program, until both directions are done, or one broke off.

    Args:
        still_may: as for ``relay_command``.

    Raises:
        UnavailableError: the task does not listen there.
        InvalidInputError: the client said that its input ends, and sent more.
        NotAllowedError: as for ``relay_command``.
    """
    reader, writer = await asyncio.open_connection(sock=await way.open(_TAKEN_WITHIN_S))

    async def to_port() -> None:
        is_at_end = False
        while True:
            message = await client.receive()
            if message["type"] == "websocket.disconnect":
                return
            _require(still_may)
            on_input()
            if is_at_end:
                raise InvalidInputError("there is a message behind the end of the input", 'send {"eof": true} last')
            if message.get("bytes"):
                writer.write(message["bytes"])
                await writer.drain()
            elif writer.can_write_eof():
                writer.write_eof()
                is_at_end = True

    async def to_client() -> None:
        while data := await reader.read(_BLOCK):
            _require(still_may)
            await client.send_bytes(data)

    with closing(writer), suppress(*_BROKEN_OFF):
        await until_one_ends(to_port(), to_client(), keep_asking(partial(_require, still_may)))


def _require(still_may: Callable[[], bool]) -> None:
    if not still_may():
        raise NotAllowedError(
            "your login or your right to be inside this job has ended", "log in with `pond login URL`"
        )


def as_message(cause: str, remedy: str) -> str:
    """An error as the last message of a stream."""
    return json.dumps({"error": cause, "remedy": remedy})
