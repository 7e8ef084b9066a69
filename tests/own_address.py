"""An address of this machine that is this process's alone, so that a port on it stays free until it is used."""

from __future__ import annotations

import os
import socket


def own_address() -> str:
    """Below 127.64.0.0/10, which is this machine as much as 127.0.0.1 is; no two processes have the same."""
    high, middle, low = os.getpid().to_bytes(3)
    return f"127.{64 + high}.{middle}.{low}"


def free_port(address: str) -> int:
    """A port on which no program listens. On an address of one's own nobody will, before one does it oneself."""
    with socket.create_server((address, 0)) as free:
        port: int = free.getsockname()[1]
        return port
