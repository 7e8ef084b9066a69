"""Ports of this machine for tasks: where gangs meet and where services listen."""

from __future__ import annotations

import random
import socket
from collections.abc import Container

from millpond.model.errors import UnavailableError

ADDRESS = "127.0.0.1"

_PORTS = range(20_000, 32_000)
"""Below the range from which Linux takes the ports of outgoing connections (32768 on), so that none of those can sit on
the chosen one before the task listens."""
_TRIES = 200


def free_port(taken: Container[int]) -> int:
    """A port on ``ADDRESS`` that no program listens on.

    Args:
        taken: ports that were given away, whether or not anybody listens there yet.

    Raises:
        UnavailableError: none was found.
    """
    for _ in range(_TRIES):
        port = random.choice(_PORTS)
        if port not in taken and _is_free(port):
            return port
    raise UnavailableError(
        f"no free port for a task between {_PORTS.start} and {_PORTS.stop}", "end some programs that listen there"
    )


def _is_free(port: int) -> bool:
    with socket.socket() as candidate:
        try:
            candidate.bind((ADDRESS, port))
        except OSError:
            return False
    return True
