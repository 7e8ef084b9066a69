"""A job's output as a stream that survives lost connections.

Each piece carries a cursor; after a loss the next request goes on behind the last piece that arrived whole. A silent
connection counts as lost too: asking again costs one request and loses nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from millpond.client.sdk.transport.connection import ServerConnection
from millpond.client.sdk.transport.reconnecting import Patience
from millpond.model.errors import MillpondError, UnavailableError
from millpond.specs.api.codec import from_json
from millpond.specs.api.jobs.logs import LogChunk

if TYPE_CHECKING:
    import httpx2

SILENCE_S = 60.0
"""A followed stream without a byte for so long is asked for anew."""


def follow(
    connection: ServerConnection, patience: Patience, path: str, params: Mapping[str, Any]
) -> Iterator[LogChunk]:
    """Pieces of output until the last one, in order, each once, through losses of the connection.

    Args:
        params: the request's parameters; with an ``attempt`` the end of that attempt is the end.

    Raises:
        UnavailableError: the server stayed away.
    """
    import httpx2

    asked = dict(params)
    while True:
        failure: httpx2.TransportError | UnavailableError | None = None
        attempt_over = False
        answered = threading.Event()
        try:
            for chunk in read(connection, path, asked, answered.set):
                patience.found()
                if chunk.cursor:
                    asked["cursor"] = chunk.cursor
                yield chunk
                if chunk.job_over:
                    return
                attempt_over = chunk.attempt_over
            if attempt_over and "attempt" in asked:
                return
        except httpx2.ReadTimeout:
            continue
        except (httpx2.TransportError, UnavailableError) as error:
            failure = error
            if answered.is_set():  # with nothing to report: it was there until now
                patience.found()
        patience.lost(failure)


def read(
    connection: ServerConnection, path: str, params: Mapping[str, Any], on_answer: Callable[[], None] = lambda: None
) -> Iterator[LogChunk]:
    """The pieces of one request: whole lines only; what a loss cut off is asked for again.

    Args:
        on_answer: called when something has come, even if there is nothing to report yet.
    """
    rest = b""
    for data in connection.stream(path, params, SILENCE_S):
        on_answer()
        # Not by str.splitlines: JSON strings may hold other line separators raw.
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if line.strip():
                yield _parsed(line)


def _parsed(line: bytes) -> LogChunk:
    try:
        return from_json(LogChunk, line)
    except ValueError as error:
        raise MillpondError(
            "a piece of the log stream is not understood", "client and server should be of one version"
        ) from error
