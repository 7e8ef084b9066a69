"""HTTP requests at next to no cost: whoever measures a server on the server's own cores must leave them to it.

A client library takes milliseconds of CPU for each connection and about one for each request. This one knows what the
answers of the measured servers look like, and nothing more: HTTP/1.1, kept alive, with a length or in chunks.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from typing import Any, Self
from urllib.parse import urlsplit

MERGE_PATCH = "application/merge-patch+json"


class LeanConnection:
    """One connection to a server, opened with the first request.

    Args:
        url: of the server; where it is ``https``, its certificate is not looked at.
    """

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname, parts.port
        self._head = f"Host: {parts.netloc}\r\nAuthorization: Bearer {token}\r\n"
        self._context = ssl._create_unverified_context() if parts.scheme == "https" else None
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        self.close()

    @property
    def is_open(self) -> bool:
        """Whether something was asked, and it was not closed since."""
        return self._streams is not None

    async def request(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        """Ask, and wait for the whole answer: its status and its body.

        Args:
            body: is sent as JSON.

        Raises:
            OSError, asyncio.IncompleteReadError: the server cannot be reached, or hangs up.
        """
        reader = await self._send(method, path, body)
        status, *fields = (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
        length = next((int(field.partition(b":")[2]) for field in fields if field.startswith(b"content-length:")), None)
        content = await _chunks(reader) if length is None else await reader.readexactly(length)
        return int(status.split()[1]), content

    async def lines(self, path: str) -> AsyncIterator[bytes]:
        """What a stream of events says, line by line, for as long as it lasts; nothing else can be asked then."""
        reader = await self._send("GET", path, None)
        while line := await reader.readline():
            yield line.strip()

    def close(self) -> None:
        """Hang up."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _send(self, method: str, path: str, body: Any) -> asyncio.StreamReader:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port, ssl=self._context)
        reader, writer = self._streams
        content = b"" if body is None else json.dumps(body).encode()
        kind = f"Content-Type: {MERGE_PATCH if method == 'PATCH' else 'application/json'}\r\n"
        head = f"{method} {path} HTTP/1.1\r\n{self._head}{kind}Content-Length: {len(content)}\r\n\r\n"
        writer.write(head.encode() + content)
        return reader


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    pieces = []
    while size := int(await reader.readuntil(b"\r\n"), 16):
        pieces.append(await reader.readexactly(size))
        await reader.readexactly(2)
    await reader.readexactly(2)
    return b"".join(pieces)
