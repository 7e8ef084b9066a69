"""Connections whose other end is gone without a word: a machine without power, a network that was cut.

Where nothing is on its way the kernel probes them. Where something is, it sends that again for a quarter of an hour
(``tcp_retries2``), so it is asked how often it did. A bound on that time (``TCP_USER_TIMEOUT``) would also end those
whose other end lives and reads nothing for as long (``tcp_probe_timer`` in the kernel's ``net/ipv4/tcp_timer.c``).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Final, Protocol

LOOK_EVERY_S: Final = 5.0
MOST_UNANSWERED: Final = 6
"""In a row, each after twice as long: about half a minute."""
_PROBES: Final = {socket.TCP_KEEPIDLE: 15, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 3}
"""After 15 silent seconds, every five seconds, three times. https://man7.org/linux/man-pages/man7/tcp.7.html"""
_RETRANSMITS, _PROBES_OUT, _LENGTH = 2, 3, 4
"""Places in ``struct tcp_info`` (``include/uapi/linux/tcp.h``): data sent again, and room asked for, times in a row."""


class TcpSocket(Protocol):
    """A socket, or what an event loop shows of one."""

    def getsockopt(self, level: int, option: int, length: int, /) -> bytes: ...
    def setsockopt(self, level: int, option: int, value: int, /) -> None: ...


def probe(connection: TcpSocket) -> None:
    """Have the kernel find out, where nothing is said, that the other end is gone."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _PROBES.items():
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


async def end_when_gone(connection: TcpSocket, end: Callable[[], object]) -> None:
    """End a connection when its other end answers nothing any more; returns when it is closed."""
    with contextlib.suppress(OSError, ValueError):  # it is closed; uvloop has the other word for that
        probe(connection)
        while not _is_gone(connection):
            await asyncio.sleep(LOOK_EVERY_S)
        end()


def _is_gone(connection: TcpSocket) -> bool:
    told = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LENGTH)
    return max(told[_RETRANSMITS], told[_PROBES_OUT]) >= MOST_UNANSWERED
