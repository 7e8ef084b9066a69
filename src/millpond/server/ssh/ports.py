"""Between an SSH channel and a port of this machine."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable
from typing import Any, Final

import asyncssh
from asyncssh.stream import SSHTCPStreamSession

from millpond.server.ssh.control import Visit

_BLOCK: Final = 32_768
_PORT_ADDRESS: Final = "127.0.0.1"


async def relay_port(visit: Visit, port: int, connection: socket.socket | None) -> SSHTCPStreamSession[bytes]:
    """A session that carries a channel to a port of this machine.

    Args:
        connection: that was made already, to a program that is not at a port of this machine.

    Raises:
        ChannelOpenError: nobody listens there.
    """
    try:
        if connection is None:
            reader, writer = await asyncio.open_connection(_PORT_ADDRESS, port)
        else:
            reader, writer = await asyncio.open_connection(sock=connection)
    except (OSError, OverflowError) as error:
        visit.left()
        number = getattr(error, "errno", None)
        cause = f"nobody listens on port {port} ({os.strerror(number) if number else error})"
        raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, cause) from error

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


async def _pump(read: Any, writer: Any, visit: Visit) -> None:
    """One direction, up to its end."""
    while data := await read(_BLOCK):
        visit.used()
        writer.write(data)
        drained: Awaitable[None] = writer.drain()
        await drained
    if writer.can_write_eof():
        writer.write_eof()
