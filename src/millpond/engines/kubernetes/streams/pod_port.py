"""One connection to a program of a pod, through the API server: bytes between a socket and a forwarded port.

The program is asked at the loopback of its pod, so it need not listen anywhere else. The protocol says when there is
none, and nothing when there is one: so the first connections to a port wait a moment for bad news.

It cannot end one direction alone. A program that answers only when the other side has ended its own bytes, without
saying so in them, is not reached like this.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
from typing import Final

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from millpond.engines.kubernetes.streams.channels import PodChannels

BAD_NEWS_WITHIN_S: Final = 0.25
_DATA, _ERROR = b"\x00", b"\x01"
_BLOCK: Final = 65_536
_LOOK_EVERY_S: Final = 0.5
_PORT_BYTES: Final = 2
"""The first message of each channel repeats the number of the port."""


class PodPort:
    """A connection to one port of one pod. Lives on the engine's loop.

    Attributes:
        has_answered: something came from the program.
    """

    def __init__(self, stream: ClientConnection) -> None:
        self._stream = stream
        self._greeted: set[bytes] = set()
        self._first = b""
        self.has_answered = False

    @staticmethod
    async def open(channels: PodChannels, pod: str, port: int, *, is_known: bool) -> PodPort:
        """A connection.

        Args:
            is_known: a program answered there just now, so that there is one.

        Raises:
            UnavailableError: the pod is not reached.
            ConnectionError: no program listens there.
        """
        opened = PodPort(await channels.open(pod, "portforward", [("ports", str(port))]))
        try:
            if not is_known:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(BAD_NEWS_WITHIN_S):
                        opened._first = await opened._next()
                        if not opened._first:
                            raise ConnectionRefusedError(f"no program of pod {pod} listens on port {port}")
        except BaseException:  # also a cancellation
            await opened._stream.close()
            raise
        return opened

    async def carry(self, client: socket.socket) -> None:
        """Pass bytes on until the program or the client is done; both sides are closed then."""
        directions = [asyncio.ensure_future(self._inward(client)), asyncio.ensure_future(self._outward(client))]
        try:
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in directions:
                each.cancel()
            await asyncio.gather(*directions, return_exceptions=True)
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
            client.close()
            await self._stream.close()

    async def _inward(self, client: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(ConnectionClosed, ConnectionError):
            while data := await loop.sock_recv(client, _BLOCK):
                await self._stream.send(_DATA + data)
            while not _is_gone(client):  # it has nothing more to say, and listens still
                await asyncio.sleep(_LOOK_EVERY_S)

    async def _outward(self, client: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(ConnectionError):
            data = self._first
            while data or (data := await self._next()):
                self.has_answered = True
                await loop.sock_sendall(client, data)
                data = b""

    async def _next(self) -> bytes:
        """What comes from the program next; nothing when no more does, or there is none."""
        with contextlib.suppress(ConnectionClosed):
            while True:
                message = await self._stream.recv(decode=False)
                channel, data = message[:1], message[1:]
                if channel not in self._greeted:
                    self._greeted.add(channel)
                    data = data[_PORT_BYTES:]
                if data and channel == _DATA:
                    return data
                if data:
                    break  # an error, in words for the log of the kubelet
        return b""


def _is_gone(client: socket.socket) -> bool:
    """Whether the other end was closed, and not only its sending half."""
    poll = select.poll()
    poll.register(client, 0)
    return any(events & select.POLLHUP for _, events in poll.poll(0))
