"""Between an SSH channel and a session beside a task (``node.sessions.session``): a command, a shell, SFTP, or a port.

Not more than a few messages wait in either direction: a slow reader slows the writer.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

import asyncssh
from asyncssh.stream import SSHTCPStreamSession

from millpond.node.sessions.exec_sessions import MOST_AT_ONCE
from millpond.server.sessions.relay import until_one_ends
from millpond.server.sessions.ssh.control import GatewayControl, RefusalError, TaskSession
from millpond.server.sessions.ssh.messages import LARGEST_MESSAGE, GatewayRequest

log = logging.getLogger(__name__)

_MOST_WAITING: Final = 4
_MOST_SAID: Final = 64
_STDIN: Final = b"\x00"
_END_OF_INPUT: Final = b'{"eof": true}'
_CTRL_C: Final = b"\x03"
_ERRORS: Final = 2
_LOST: Final = 255
"""The exit code that ssh itself has when a connection breaks."""
_TOO_LONG: Final = 126
"""That of a shell for a command with too many arguments."""
_CUT_OFF: Final = (
    f"cut off: the task has ended, has {MOST_AT_ONCE} commands beside it already, or is no longer open to you"
)
_SHELL: Final = ["/bin/sh", "-c", 'exec "${SHELL:-/bin/sh}" -i']
_QUIET_SHELL: Final = ["/bin/sh", "-c", 'exec "${SHELL:-/bin/sh}"']
_LINE: Final = ["/bin/sh", "-c", 'exec "${SHELL:-/bin/sh}" -c "$1"', "sh"]
_BLOCK: Final = 32_768


class TaskChannel(asyncssh.SSHServerSession[bytes]):
    """One channel of a client.

    Args:
        claim: who they are, where from, and for which job.
        until_room: waits until the client has taken what it was sent.
        on_end: called once it is over.
    """

    def __init__(
        self,
        control: GatewayControl,
        claim: dict[str, Any],
        until_room: Callable[[], Awaitable[None]],
        on_end: Callable[[], None],
    ) -> None:
        self._control = control
        self._claim = claim
        self._until_room = until_room
        self._on_end = on_end
        self._order: dict[str, Any] = {}
        self._terminal: dict[str, Any] = {}
        self._inward: deque[bytes] = deque()
        self._something_inward = asyncio.Event()
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._left = asyncio.Event()

    # ---- what the client does -----------------------------------------------------------------------------------

    def connection_made(self, chan: asyncssh.SSHServerChannel[bytes]) -> None:
        self._channel = chan
        # No variables are passed on to tasks; the library would keep them without end.
        chan._process_env_request = lambda packet: False  # type: ignore[method-assign]

    def connection_lost(self, exc: Exception | None) -> None:
        self._left.set()
        self._on_end()

    def pty_requested(self, term_type: str, term_size: tuple[int, int, int, int], term_modes: Any) -> bool:
        self._terminal = {"tty": True, "term": term_type, **_window(term_size[0], term_size[1])}
        return True

    def shell_requested(self) -> bool:
        self._order = {"argv": _SHELL if self._terminal else _QUIET_SHELL, **self._terminal}
        return True

    def exec_requested(self, command: str) -> bool:
        self._order = {"argv": [*_LINE, command], **self._terminal}
        return True

    def subsystem_requested(self, subsystem: str) -> bool:
        self._order = {"sftp": True}
        return subsystem == "sftp"

    def session_started(self) -> None:
        self._work = asyncio.ensure_future(self._run())

    def data_received(self, data: bytes, datatype: int | None) -> None:
        self._put(_STDIN + data)
        if len(self._inward) >= _MOST_WAITING:
            self._channel.pause_reading()

    def eof_received(self) -> bool:
        self._put(_END_OF_INPUT)
        return True  # it still reads

    def terminal_size_changed(self, width: int, height: int, pixwidth: int, pixheight: int) -> None:
        self._say(json.dumps(_window(width, height)).encode())

    def signal_received(self, signal: str) -> None:
        """Only a terminal can pass a signal on to whatever runs in it; without one, leaving ends the command."""
        if self._terminal:
            self._say(_STDIN + _CTRL_C)
        else:
            self._end(f"ended by SIG{signal}", _LOST)

    def break_received(self, msec: int) -> bool:
        self.signal_received("INT")
        return True

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    # ---- carrying -----------------------------------------------------------------------------------------------

    def _say(self, message: bytes) -> None:
        """Pass on what no window of the channel bounds, unless much waits already."""
        if len(self._inward) < _MOST_SAID:
            self._put(message)

    def _put(self, message: bytes) -> None:
        self._inward.append(message)
        self._something_inward.set()

    async def _run(self) -> None:
        """Run what the client asked for, and end the channel with its exit code."""
        order = json.dumps(self._order).encode()
        if len(order) > LARGEST_MESSAGE:
            self._end(f"a command of {len(order):,} bytes: at most {LARGEST_MESSAGE:,} are taken", _TOO_LONG)
            return
        try:
            answer = await self._control.ask(GatewayRequest.SESSION, self._claim)
        except RefusalError as refusal:
            self._end(str(refusal), refusal.exit_code)
            return
        session, connection = TaskSession(self._control, answer["session"]), answer["connection"]
        connection.setblocking(False)
        try:
            with connection:
                await asyncio.get_running_loop().sock_sendall(connection, order)
                # To wait for a client that is gone, or for room at a command that is frozen, might last for ever.
                ways = (self._to_command(session, connection), self._to_client(connection))
                await until_one_ends(*ways, self._until_left())
        except ConnectionError:
            self._end(_CUT_OFF, _LOST)
        except Exception as error:  # the client would wait for ever
            log.exception("a session ends by a defect")
            self._end(f"a defect ({type(error).__name__}): see the server's log", _LOST)
        finally:
            session.left()

    async def _to_command(self, session: TaskSession, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while self._inward:
                await loop.sock_sendall(connection, self._inward.popleft())
                session.used()
                if len(self._inward) < _MOST_WAITING:
                    self._channel.resume_reading()
            self._something_inward.clear()
            if not self._inward:
                await self._something_inward.wait()

    async def _until_left(self) -> None:
        await self._left.wait()

    async def _to_client(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while message := await loop.sock_recv(connection, LARGEST_MESSAGE):
            await self._may_write.wait()
            await self._until_room()
            if message[:1] == b"{":
                said = json.loads(message)
                if "error" in said:
                    self._channel.write_stderr(f"{said['error']}\n".encode())
                self._channel.exit(said["exit"])
                return
            kind = asyncssh.EXTENDED_DATA_STDERR if message[0] == _ERRORS else None
            self._channel.write(message[1:], kind)
        self._end(_CUT_OFF, _LOST)

    def _end(self, why: str, code: int) -> None:
        if not self._left.is_set():
            self._channel.write_stderr(f"pond: {why}\n".encode())
            self._channel.exit(code)


def _window(columns: int, rows: int) -> dict[str, int]:
    return {"rows": rows, "columns": columns}


def relay_port(
    session: TaskSession, connection: socket.socket, until_room: Callable[[], Awaitable[None]]
) -> SSHTCPStreamSession[bytes]:
    """A session that carries a channel to a connection that the server has made.

    It lasts until both directions are done, or one side broke off, or the client is gone: a program may well keep its
    side open, and say nothing, for ever.

    Args:
        until_room: as for ``TaskChannel``.
    """

    async def carry(from_client: asyncssh.SSHReader[bytes], to_client: asyncssh.SSHWriter[bytes]) -> None:
        try:
            reader, writer = await asyncio.open_connection(sock=connection)

            async def read(most: int) -> bytes:
                await until_room()
                return await reader.read(most)

            try:
                await until_one_ends(
                    _both(_pump(from_client.read, writer, session), _pump(read, to_client, session)),
                    to_client.channel.wait_closed(),
                )
            finally:
                writer.close()
                to_client.close()
                await writer.wait_closed()  # the program still takes what the client has sent
        except (OSError, asyncssh.Error):
            return  # one side broke off, which is an end like another
        finally:
            session.left()

    return SSHTCPStreamSession(carry)


async def _both(*ways: Coroutine[Any, Any, None]) -> None:
    await asyncio.gather(*ways)


async def _pump(read: Any, writer: Any, session: TaskSession) -> None:
    """One direction, up to its end."""
    while data := await read(_BLOCK):
        session.used()
        writer.write(data)
        drained: Awaitable[None] = writer.drain()
        await drained
    if writer.can_write_eof():
        writer.write_eof()
