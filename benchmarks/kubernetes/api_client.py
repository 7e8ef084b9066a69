"""Requests to an API server at little cost: what shares the machine with what it measures must leave it the cores.

HTTP/1.1 over TLS, kept alive, on as many connections as are asked for; answers with a length or in chunks.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections import Counter
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

import uvloop

R = TypeVar("R")
MERGE_PATCH = "application/merge-patch+json"


@dataclass(frozen=True, slots=True)
class Ask:
    """One request; ``body`` is JSON."""

    method: str
    path: str
    body: Any = None


@dataclass(frozen=True, slots=True)
class Reply:
    """What came of one."""

    status: int
    content: bytes

    def json(self) -> Any:
        """The answer, decoded."""
        return json.loads(self.content)


class Connection:
    """One connection to the API server, opened with the first request, and again where it was cut.

    Args:
        url: ``https://host:port``; its certificate is not looked at.
    """

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname, parts.port
        self._head = f"Host: {parts.netloc}\r\nAuthorization: Bearer {token}\r\n"
        self._context = ssl._create_unverified_context()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, ask: Ask) -> Reply:
        """Ask, and wait for the whole answer.

        Raises:
            OSError, asyncio.IncompleteReadError: the server cannot be reached, or hangs up.
        """
        was_open = self._streams is not None
        try:
            return await self._ask(ask)
        except (OSError, asyncio.IncompleteReadError):
            self.close()
            if not was_open:
                raise
            return await self._ask(ask)  # the server went away and came back since the last request

    async def _ask(self, ask: Ask) -> Reply:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port, ssl=self._context)
        reader, writer = self._streams
        content = b"" if ask.body is None else json.dumps(ask.body).encode()
        kind = MERGE_PATCH if ask.method == "PATCH" else "application/json"
        head = f"{ask.method} {ask.path} HTTP/1.1\r\n{self._head}Content-Type: {kind}\r\n"
        writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        status, *fields = (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
        length = next((int(field.partition(b":")[2]) for field in fields if field.startswith(b"content-length:")), None)
        body = await _chunks(reader) if length is None else await reader.readexactly(length)
        return Reply(int(status.split()[1]), body)

    def close(self) -> None:
        """Hang up."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    pieces = []
    while size := int(await reader.readuntil(b"\r\n"), 16):
        pieces.append(await reader.readexactly(size))
        await reader.readexactly(2)
    await reader.readexactly(2)
    return b"".join(pieces)


class ApiClient:
    """A crowd of connections on a thread of its own, for programs that are not asynchronous themselves."""

    def __init__(self, url: str, token: str, connections: int = 32) -> None:
        self._loop = uvloop.new_event_loop()
        self._crowd = [Connection(url, token) for _ in range(connections)]
        self._thread = threading.Thread(target=self._loop.run_forever, name="api-client", daemon=True)
        self._thread.start()

    def ask(self, method: str, path: str, body: Any = None) -> Reply:
        """One request."""
        return self._run(self._crowd[0].ask(Ask(method, path, body)))

    def all(self, asks: Iterable[Ask]) -> Counter[int]:
        """All of them, as fast as the server takes them; how many had which status."""
        return self._run(self._all(asks))

    async def _all(self, asks: Iterable[Ask]) -> Counter[int]:
        waiting, seen = iter(asks), Counter[int]()

        async def work(connection: Connection) -> None:
            for ask in waiting:
                seen[(await connection.ask(ask)).status] += 1

        await asyncio.gather(*map(work, self._crowd))
        return seen

    def close(self) -> None:
        """Hang up everywhere."""

        async def hang_up() -> None:
            for connection in self._crowd:
                connection.close()

        self._run(hang_up())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self, work: Coroutine[Any, Any, R]) -> R:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
