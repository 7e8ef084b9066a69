"""A program at a port of this machine that answers HTTP in ways of its own."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import repeat

Pieces = Iterator[bytes]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def endless_body() -> Pieces:
    yield HEAD + b"\r\n"
    yield from repeat(b" " * 65_536)


def endless_head() -> Pieces:
    yield HEAD
    yield from repeat(b"X-Filling: x\r\n", 5)
    yield from repeat(b"")


def silence() -> Pieces:
    yield from repeat(b"")


@contextmanager
def answering(pieces: Callable[[], Pieces], speaks_first: bool = False) -> Iterator[int]:
    """The port; every connection gets these pieces, an empty one being a pause."""
    over = threading.Event()

    def answer(client: socket.socket) -> None:
        with suppress(OSError), client:
            if not speaks_first:
                client.recv(65_536)
            for piece in pieces():
                if over.wait(0.0 if piece else 0.01):
                    return
                client.sendall(piece)

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with suppress(OSError):
                while not over.is_set():
                    client, _ = listener.accept()
                    threading.Thread(target=answer, args=(client,), daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        over.set()
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
