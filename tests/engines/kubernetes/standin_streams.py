"""Streams into the pods of a stand-in cluster, whose containers are this machine.

Commands are run for real, with the habits of a container runtime: one whose client has left goes on, and only its input
ends then; input cannot be ended otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Sequence
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from millpond.node.host.files import write_all

PROTOCOL = "v4.channel.k8s.io"
_STDIN, _STDOUT, _STDERR, _STATUS, _RESIZE = (bytes([number]) for number in range(5))
_DATA, _ERROR = b"\x00", b"\x01"
HELD_OPEN_S = 2.0
"""So long a command that is over is waited for by those to whom others hold its output open."""


async def serve_command(
    client: WebSocket, words: Sequence[str], terminal: bool, running: dict[subprocess.Popen[bytes], bool]
) -> None:
    """Run one command for a client; it is started as the leader of a session, as containers' commands are.

    Args:
        running: has the command while it runs, and whether that is at a terminal.
    """
    await client.accept(subprotocol=PROTOCOL)
    try:
        process, ends = _start(words, terminal)
    except OSError as error:
        await client.send_bytes(_STATUS + _status("InternalError", f"exec failed: {words[0]}: {error.strerror}"))
        await client.close()
        return
    outputs = [asyncio.ensure_future(_carry_out(client, end, kind)) for kind, end in ends.items() if kind != _STDIN]
    inward = asyncio.ensure_future(_carry_in(client, ends, terminal))
    running[process] = terminal
    try:
        code = await asyncio.to_thread(process.wait)
        running.pop(process)
        await asyncio.wait(outputs, timeout=HELD_OPEN_S)
        with contextlib.suppress(Exception):
            await client.send_bytes(_STATUS + (_exit_status(code if code >= 0 else 128 - code)))
            await client.close()
        for each in (inward, *outputs):
            each.cancel()
        await asyncio.gather(inward, *outputs, return_exceptions=True)
    finally:  # also where the stand-in stops: what runs on sees the end of its input
        for end in set(ends.values()):
            with contextlib.suppress(OSError):
                os.close(end)


async def serve_port(client: WebSocket, named: int, real: int | None) -> None:
    """Forward a port of a pod.

    Args:
        real: the port of this machine where its program listens; None: none does.
    """
    await client.accept(subprotocol=PROTOCOL)
    number = struct.pack("<H", named)
    for channel in (_DATA, _ERROR):
        await client.send_bytes(channel + number)
    try:
        if real is None:
            raise ConnectionRefusedError("connection refused")
        reader, writer = await asyncio.open_connection("127.0.0.1", real)
    except OSError as error:
        await client.send_bytes(_ERROR + f"error forwarding port {named} to pod: {error}".encode())
        await client.close()
        return
    outward = asyncio.ensure_future(_from_program(client, reader))
    with contextlib.suppress(OSError, RuntimeError, WebSocketDisconnect):
        while message := await client.receive_bytes():
            writer.write(message[1:])
            await writer.drain()
    outward.cancel()
    writer.close()


async def _from_program(client: WebSocket, reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(OSError, RuntimeError, WebSocketDisconnect):
        while data := await reader.read(32_768):
            await client.send_bytes(_DATA + data)
        await client.close()


def _start(words: Sequence[str], terminal: bool) -> tuple[subprocess.Popen[bytes], dict[bytes, int]]:
    if terminal:
        ours, theirs = pty.openpty()
        take = lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # noqa: E731
        process = subprocess.Popen(
            words, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True, preexec_fn=take
        )
        os.close(theirs)
        return process, {_STDIN: ours, _STDOUT: ours}
    process = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    pipes = {_STDIN: process.stdin, _STDOUT: process.stdout, _STDERR: process.stderr}
    ends = {kind: os.dup(pipe.fileno()) for kind, pipe in pipes.items()}
    for pipe in pipes.values():
        pipe.close()
    return process, ends


async def _carry_out(client: WebSocket, end: int, kind: bytes) -> None:
    with contextlib.suppress(OSError, RuntimeError, WebSocketDisconnect):
        while data := await asyncio.to_thread(os.read, end, 32_768):
            await client.send_bytes(kind + data)


async def _carry_in(client: WebSocket, ends: dict[bytes, int], terminal: bool) -> None:
    end = ends[_STDIN]
    with contextlib.suppress(OSError, RuntimeError, WebSocketDisconnect):
        while message := await client.receive_bytes():
            if message[:1] == _RESIZE:
                size = json.loads(message[1:])
                fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", size["Height"], size["Width"], 0, 0))
            elif message[:1] == _STDIN:
                await asyncio.to_thread(write_all, end, message[1:])  # a signal may end one write halfway
    if not terminal:  # no longer among those to close: its number may be another file's by then
        os.close(ends.pop(_STDIN))


def _exit_status(code: int) -> bytes:
    if not code:
        return json.dumps({"metadata": {}, "status": "Success"}).encode()
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return _status("NonZeroExitCode", f"command terminated with exit code {code}", {"causes": causes})


def _status(reason: str, message: str, details: Any = None) -> bytes:
    plain = {"metadata": {}, "status": "Failure", "reason": reason, "message": message, "details": details or {}}
    return json.dumps(plain).encode()
