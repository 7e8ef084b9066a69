"""HTTP requests at next to no cost: whoever measures a server on the server's own cores must leave them to it.

A client library takes milliseconds of CPU for each connection and about one for each request. This one knows what this
server's answers look like, and nothing more: HTTP/1.1, kept alive, with a length.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from millpond.specs.api.base import API_PREFIX


class LeanClient:
    """One connection to a server's API, opened with the first request.

    Args:
        url: of the server; without encryption.
    """

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname, parts.port
        self._head = f"HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer {token}\r\n"
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if self._streams is not None:
            self._streams[1].close()

    async def request(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        """Ask the API, and wait for the whole answer: its status and its body.

        Raises:
            OSError, asyncio.IncompleteReadError: the server cannot be reached, or hangs up.
        """
        return await self._answer(await self._send(method, f"{API_PREFIX}{path}", body))

    async def page(self, path: str) -> tuple[int, bytes]:
        """The same of a page of the portal, by its path."""
        return await self._answer(await self._send("GET", path, None))

    async def lines(self, path: str) -> AsyncIterator[bytes]:
        """What a stream of events says, line by line, for as long as it lasts; nothing else can be asked then."""
        reader = await self._send("GET", path, None)
        while line := await reader.readline():
            yield line.strip()

    async def _send(self, method: str, path: str, body: Any) -> asyncio.StreamReader:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        content = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} {self._head}Content-Length: {len(content)}\r\n\r\n"
        writer.write(head.encode() + content)
        return reader

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[int, bytes]:
        status, *fields = (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
        length = next(int(field.partition(b":")[2]) for field in fields if field.startswith(b"content-length:"))
        return int(status.split()[1]), await reader.readexactly(length)
