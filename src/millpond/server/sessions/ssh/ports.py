"""Between an SSH channel and a port of a task."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable
from typing import Any, Final

import asyncssh
from asyncssh.stream import SSHTCPStreamSession

from millpond.server.sessions.ssh.control import TaskSession

_BLOCK: Final = 32_768


async def relay_port(visit: TaskSession, connection: socket.socket) -> SSHTCPStreamSession[bytes]:
    """A session that carries a channel to a connection that the server has made."""
    reader, writer = await asyncio.open_connection(sock=connection)

    async def carry(from_client: asyncssh.SSHReader[bytes], to_client: asyncssh.SSHWriter[bytes]) -> None:
        ways = (
            asyncio.ensure_future(_pump(from_client.read, writer, visit)),
            asyncio.ensure_future(_pump(reader.read, to_client, visit)),
        )
        try:
            await asyncio.gather(*ways)
        except (OSError, asyncssh.Error):
            return  # one side broke off, which is an end like another
        finally:
            for way in ways:
                way.cancel()
            writer.close()
            to_client.close()
            visit.left()

    return SSHTCPStreamSession(carry)


async def _pump(read: Any, writer: Any, visit: TaskSession) -> None:
    """One direction, up to its end."""
    while data := await read(_BLOCK):
        visit.used()
        writer.write(data)
        drained: Awaitable[None] = writer.drain()
        await drained
    if writer.can_write_eof():
        writer.write_eof()
