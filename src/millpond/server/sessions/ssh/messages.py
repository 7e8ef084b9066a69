"""What the gateway asks the authorizer, and the answers: JSON on a socket that keeps the bounds of messages.

A question is ``{"id": .., "ask": .., ..}``, its answer ``{"id": .., ..}``, with ``error``, ``remedy`` and ``exit``
where it is no. ``job`` may be ``JOB.TASK``. An answer that grants access to a task brings the open connection to
the task's supervisor with it (``SCM_RIGHTS``): what is said there goes past the server. Messages without an id want no
answer.
"""

from __future__ import annotations

import json
import socket
from enum import StrEnum
from typing import Any, Final

LARGEST_MESSAGE: Final = 65_536


class GatewayRequest(StrEnum):
    """What the gateway says."""

    GREET = "greet"
    """A client at ``address`` begins to log in: may it try?"""
    KNOW = "know"
    """Whether the public key ``key`` stands for a user."""
    ENTERED = "entered"
    """A client at ``address`` has proved to have ``key``, and wants to ``job``. Answered with the ``user``."""
    FAILED = "failed"
    """A client at ``address`` that wanted to ``job`` left without having proved anything."""
    SESSION = "session"
    """The bearer of ``key`` wants to run something beside ``job``. Answered with a connection and a ``session``."""
    FORWARD = "forward"
    """The bearer of ``key`` wants to ``port`` of ``job``; 0 is where it serves. Answered with ``session`` and ``port``,
    and with a connection where the gateway cannot make one itself."""
    USED = "used"
    """``session`` is in use."""
    LEFT = "left"
    """``session`` is over."""


def send(connection: socket.socket, message: dict[str, Any], handed: socket.socket | None = None) -> None:
    """Send a message, and with it a descriptor where one is handed over.

    Raises:
        OSError: the other side is gone.
        ValueError: the other side takes no message so large; nothing is sent.
    """
    data = json.dumps(message).encode()
    if len(data) > LARGEST_MESSAGE:
        raise ValueError(f"a message of {len(data)} bytes: at most {LARGEST_MESSAGE} are taken")
    if handed is None:
        connection.send(data)
    else:
        socket.send_fds(connection, [data], [handed.fileno()])


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """The next message and the descriptors that came with it; None at the end.

    Raises:
        OSError: there is none now, or the other side is gone.
    """
    data, descriptors, _, _ = socket.recv_fds(connection, LARGEST_MESSAGE, 1)
    return (json.loads(data), descriptors) if data else None
