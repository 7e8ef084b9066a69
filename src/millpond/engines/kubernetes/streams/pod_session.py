"""One command beside the program of a pod, with the messages that local tasks have (``node.sessions.session``).

Kubernetes ends no command whose client has left, and until 1.30 it cannot end a command's input alone. So what is
started is a small shell script above the command, which is told both:

- Without a terminal, input goes there in pieces, each behind a line with its length; a length of 0 is the end of the
  input. When the stream itself ends without the command, the client has left, also because this server was killed: the
  script ends the command with SIGHUP and SIGTERM, as a terminal that is closed would.
- With a terminal, the script says its process id first and becomes the command. When the client leaves, another command
  sends the signals there. That one is not sent where this server is killed: such a command stays until its pod ends.

It takes ``/bin/sh`` in the image, and for input without a terminal ``dd``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from millpond.engines.kubernetes.cluster.objects import StatusObject
from millpond.engines.kubernetes.pods.pod_marks import CONTAINER
from millpond.engines.kubernetes.streams.channels import PodChannels
from millpond.model.errors import UnavailableError
from millpond.node.sessions.session import LARGEST_DATA, LARGEST_MESSAGE, STDERR, STDIN, STDOUT
from millpond.node.sessions.sftp_inside import command_inside

_STATUS: Final = b"\x03"
_RESIZE: Final = b"\x04"
_END_OF_TYPING: Final = b"\x04"
_NOT_EXECUTABLE: Final = 126
_LOST: Final = 255
"""The exit code that ssh has when a connection breaks."""
_HEARD_WITHIN_S: Final = 5.0
_HANG_UP_WITHIN_S: Final = 20.0
_LONGEST_FIRST_LINE: Final = 32

# Fills the command's pipe; the first line is its own process id, by which it is ended when the command is over.
_FEEDER: Final = """trap '' HUP TERM
echo $$
while read -r length; do
  if [ "$length" = 0 ]; then exec >&-; else dd bs="$length" count=1 iflag=fullblock; fi
done
kill -s HUP 0; kill -s TERM 0"""
_WITH_PIPES: Final = """exec 3<&0 4>&2 2>/dev/null
feeder=$1; shift
sh -c "$feeder" <&3 4>&- | {
  exec 2>&4 3<&- 4>&-
  read -r feeder
  "$@"
  code=$?
  kill -s KILL "$feeder" 2>/dev/null
  exit $code
}"""
_WITH_TERMINAL: Final = """echo $$
export TERM="$1"
stty rows "$2" cols "$3" 2>/dev/null
shift 3
exec "$@"
"""
_HANG_UP: Final = (
    """for signal in HUP CONT TERM; do kill -s $signal -- "-$1" 2>/dev/null; kill -s $signal "$1" 2>/dev/null; done"""
)


@dataclass(frozen=True, slots=True)
class PodCommand:
    """What a client wants to run.

    Attributes:
        words: the command.
        window: rows and columns of the terminal that it gets; None: it gets pipes.
        term: the kind of terminal.
    """

    words: tuple[str, ...]
    window: tuple[int, int] | None = None
    term: str = "xterm"

    @staticmethod
    def of(order: dict[str, Any]) -> PodCommand:
        """A client's order."""
        words = command_inside() if order.get("sftp") else [str(word) for word in order["argv"]]
        if not order.get("tty"):
            return PodCommand(tuple(words))
        return PodCommand(tuple(words), _window(order), str(order.get("term") or "xterm"))

    @property
    def query(self) -> list[tuple[str, str]]:
        """The question for the API server."""
        if self.window is None:
            return exec_query(["/bin/sh", "-c", _WITH_PIPES, "sh", _FEEDER, *self.words], terminal=False)
        size = (str(self.window[0]), str(self.window[1]))
        return exec_query(["/bin/sh", "-c", _WITH_TERMINAL, "sh", self.term, *size, *self.words], terminal=True)


class PodSession:
    """One command in one pod.

    Args:
        client: the other end of what the client has; closed at the end.
    """

    def __init__(self, channels: PodChannels, pod: str, client: socket.socket) -> None:
        self._channels = channels
        self._pod = pod
        self._client = client
        self._terminal = False
        self._process = ""

    async def run(self) -> None:
        """Serve the client until it leaves, or the command is over."""
        with self._client:
            try:
                order = json.loads(await self._next())
                command = PodCommand.of(order)
            except (ValueError, KeyError, TypeError):
                return  # it has left, or is none of the server's
            self._terminal = command.window is not None
            try:
                pod = await self._channels.open(self._pod, "exec", command.query)
            except UnavailableError as error:
                await self._say_last({"error": error.cause, "remedy": error.remedy, "exit": _NOT_EXECUTABLE})
                return
            async with pod:
                await self._serve(pod)

    async def _serve(self, pod: ClientConnection) -> None:
        messages = messages_of(pod)
        last = await self._begin(messages)
        if last is None:
            inward = asyncio.ensure_future(self._to_command(pod))
            outward = asyncio.ensure_future(self._to_client(messages))
            try:
                await asyncio.wait([inward, outward], return_when=asyncio.FIRST_COMPLETED)
                last = outward.result() if outward.done() else None
            finally:
                for each in (inward, outward):
                    each.cancel()
                await asyncio.gather(inward, outward, return_exceptions=True)
        if last is None:
            await self._hang_up()
        else:
            await self._say_last(last)

    async def _begin(self, messages: AsyncIterator[bytes]) -> dict[str, Any] | None:
        """With a terminal, learn which process it is; the last word of one that did not even come so far."""
        line = b""
        while self._terminal and not self._process:
            message = await anext(messages, b"")
            if message[:1] in (_STATUS, b""):
                return _last_word(message)
            line += message[1:]
            first, newline, rest = line.partition(b"\n")
            if newline or len(line) > _LONGEST_FIRST_LINE:
                self._process = first.strip().decode(errors="replace")
                with contextlib.suppress(OSError):  # the client has left: that is seen next, and the command ended
                    await self._pass_on(STDOUT + rest)
        return None

    async def _to_command(self, pod: ClientConnection) -> None:
        """Returns when the client has left."""
        with contextlib.suppress(ConnectionClosed):
            while message := await self._next():
                if message[:1] == STDIN:
                    await pod.send(STDIN + self._framed(message[1:]))
                elif (request := json.loads(message)).get("eof"):
                    await pod.send(STDIN + (_END_OF_TYPING if self._terminal else b"0\n"))
                else:
                    rows, columns = _window(request)
                    await pod.send(_RESIZE + json.dumps({"Width": columns, "Height": rows}).encode())
            return
        await asyncio.Future()  # the other direction finds out why

    def _framed(self, data: bytes) -> bytes:
        return data if self._terminal or not data else b"%d\n%s" % (len(data), data)

    async def _to_client(self, messages: AsyncIterator[bytes]) -> dict[str, Any] | None:
        """The last word; None when the client has left."""
        try:
            async for message in messages:
                if message[:1] == _STATUS:
                    return _last_word(message)
                await self._pass_on(message)
        except OSError:
            return None
        return _last_word(b"")

    async def _pass_on(self, message: bytes) -> None:
        kind, loop = message[:1], asyncio.get_running_loop()
        if kind in (STDOUT, STDERR):
            for begin in range(1, len(message), LARGEST_DATA):
                await loop.sock_sendall(self._client, kind + message[begin : begin + LARGEST_DATA])

    async def _hang_up(self) -> None:
        """The client is gone. Without a terminal, the end of the stream says so to the script."""
        if self._process.isdigit():
            with contextlib.suppress(UnavailableError, TimeoutError):
                async with asyncio.timeout(_HANG_UP_WITHIN_S):
                    await said_by(self._channels, self._pod, _HANG_UP, self._process)

    async def _next(self) -> bytes:
        """What the client says next; nothing when it has left."""
        try:
            return await asyncio.get_running_loop().sock_recv(self._client, LARGEST_MESSAGE)
        except ConnectionError:
            return b""

    async def _say_last(self, message: dict[str, Any]) -> None:
        """Leave once it was heard: a socket that is closed with something unread in it loses both ways."""
        with contextlib.suppress(OSError):
            async with asyncio.timeout(_HEARD_WITHIN_S):
                await asyncio.get_running_loop().sock_sendall(self._client, json.dumps(message).encode())
                self._client.shutdown(socket.SHUT_WR)
                while await self._next():
                    continue


async def said_by(channels: PodChannels, pod: str, script: str, *words: str) -> bytes:
    """What a short script says in a pod, to its end.

    Raises:
        UnavailableError: the pod cannot be entered.
    """
    said = b""
    query = exec_query(["/bin/sh", "-c", script, "sh", *words], terminal=False)
    async with await channels.open(pod, "exec", query) as stream:
        async for message in messages_of(stream):
            if message[:1] == _STATUS:
                break
            said += message[1:] if message[:1] == STDOUT else b""
    return said


async def messages_of(pod: ClientConnection) -> AsyncIterator[bytes]:
    """What a command in a pod says until the stream ends or breaks."""
    with contextlib.suppress(ConnectionClosed):
        while True:
            message = await pod.recv(decode=False)
            if message:
                yield message


def _last_word(message: bytes) -> dict[str, Any]:
    """What a client is told at the end.

    Args:
        message: with the status of the command; empty: the stream ended without one.
    """
    try:
        status = msgspec.json.decode(message[1:], type=StatusObject)
    except msgspec.DecodeError:
        return {"error": "the connection to its pod broke off; see `pond ps` for what became of it", "exit": _LOST}
    if status.status == "Success":
        return {"exit": 0}
    code = next((each.message for each in status.details.causes if each.reason == "ExitCode"), "")
    if code.isdigit():
        return {"exit": int(code)}
    return {"error": f"the command cannot be run in its pod: {status.message}", "exit": _NOT_EXECUTABLE}


def exec_query(words: Sequence[str], *, terminal: bool) -> list[tuple[str, str]]:
    """What the API server is asked to run a command in a pod."""
    streams = [("stdin", "true"), ("stdout", "true"), ("stderr", "false" if terminal else "true")]
    return [("container", CONTAINER), *streams, ("tty", str(terminal).lower()), *(("command", word) for word in words)]


def _window(order: dict[str, Any]) -> tuple[int, int]:
    rows, columns = (min(max(int(order.get(name) or 0), 0), 9_999) for name in ("rows", "columns"))
    return rows, columns
