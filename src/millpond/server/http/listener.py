"""The socket at which a server is reached, and whether it can have one: known before anything large is loaded."""

from __future__ import annotations

import errno
import socket
from typing import Final

from millpond.model.errors import UnavailableError

_BACKLOG: Final = 512


def listen(host: str, port: int, said_by: str = "--host and --port") -> socket.socket:
    """A listening socket.

    Args:
        said_by: where the operator can choose another address.

    Raises:
        UnavailableError: the port is taken or not allowed, or the address is not this machine's.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        # With the protocol named, answers go out at once (asyncio sets TCP_NODELAY only then).
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    except (OSError, UnicodeError) as error:
        raise UnavailableError(f"no address {host!r} ({error})", f"choose another with {said_by}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        remedy = {
            errno.EADDRNOTAVAIL: f"choose an address of this machine with {said_by}",
            errno.EACCES: f"choose a port from 1024 on with {said_by}",
        }.get(error.errno or 0, f"stop what listens there, or choose another with {said_by}")
        raise UnavailableError(f"port {port} on {host} cannot be used ({error.strerror})", remedy) from error
    return listener


def url_of(listener: socket.socket, scheme: str = "http") -> str:
    """The base address by which this machine reaches the socket."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
