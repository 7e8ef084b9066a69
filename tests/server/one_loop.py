"""Test clients whose requests share one event loop, as those to a server do.

A ``TestClient`` alone begins and ends a loop with a thread for every request, which takes as long as most answers; and
with a loop, it calls into that eight times for each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from fastapi.testclient import TestClient

_loops: list[BlockingPortal] = []


@contextmanager
def one_loop() -> Iterator[None]:
    """The loop of all clients made inside.

    It is one of asyncio, which httpx2 else finds out anew for each request, by a search of all paths for a module that
    is not there.
    """
    with start_blocking_portal() as portal, pytest.MonkeyPatch.context() as patch:
        patch.setattr("httpx2._transports.asgi.create_event", asyncio.Event)
        _loops.append(portal)
        try:
            yield
        finally:
            _loops.remove(portal)


def client_of(app: Any, raise_server_exceptions: bool = True, **options: Any) -> TestClient:
    """A client of an application, on the loop that there is."""
    client = TestClient(app, raise_server_exceptions=raise_server_exceptions, **options)
    client.portal = _loops[-1]
    client._transport = _Exchanges(app, raise_server_exceptions, client.portal, client._transport)
    return client


class _Exchanges(httpx2.BaseTransport):
    """Each request with its whole answer is one call into the loop; WebSockets go the client's own way."""

    def __init__(self, app: Any, raise_exceptions: bool, loop: BlockingPortal, of_client: httpx2.BaseTransport) -> None:
        self._app = httpx2.ASGITransport(app, raise_exceptions, client=("testclient", 50_000))
        self._loop = loop
        self._of_client = of_client

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.url.scheme in ("ws", "wss"):
            return self._of_client.handle_request(request)
        request.read()
        return self._loop.call(self._exchange, request)

    async def _exchange(self, request: httpx2.Request) -> httpx2.Response:
        answer = await self._app.handle_async_request(request)
        assert isinstance(answer.stream, httpx2.AsyncByteStream)
        body = [part async for part in answer.stream]
        return httpx2.Response(answer.status_code, headers=answer.headers, stream=httpx2.ByteStream(b"".join(body)))
