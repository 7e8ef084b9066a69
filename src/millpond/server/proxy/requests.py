"""One HTTP request to a program and its answer, both streamed: nothing is kept, a slow reader slows the writer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

import httpx2
from starlette.types import Message, Receive, Scope, Send

from millpond.model.errors import MillpondError, UnavailableError
from millpond.server.proxy.headers import Headers, to_client
from millpond.server.proxy.places import ADDRESS

log = logging.getLogger(__name__)

CONNECT_WITHIN_S: Final = 5.0
SILENCE_S: Final = 600.0
"""A program may take so long until it says anything (more)."""
LARGEST_UPLOAD: Final = 4 * 2**30
"""Bytes of one request."""
_KEPT_OPEN_S: Final = 2.0
"""Shorter than programs keep idle connections, so that none is used just as its other end closes it."""


class TooLargeError(MillpondError):
    """The body of a request goes beyond ``LARGEST_UPLOAD``."""


class BrokenAnswerError(UnavailableError):
    """A program closed the connection before it answered, or answered in no way that could be read."""


class SilentError(UnavailableError):
    """A program did not answer in time."""


class _ClientLeftError(Exception):
    """Nobody waits for the answer any more."""


@dataclass(frozen=True, slots=True)
class Target:
    """A request as a program gets it.

    Attributes:
        path: with the query, as written.
        prefix: where the proxy shows the program, without a slash at the end.
        whole_path: the program knows its prefix.
    """

    port: int
    path: bytes
    headers: Headers
    prefix: str
    whole_path: bool


class RequestRelay:
    """Passes requests on; connections to programs are kept open for a while."""

    def __init__(self) -> None:
        self._client = httpx2.AsyncClient(
            timeout=httpx2.Timeout(SILENCE_S, connect=CONNECT_WITHIN_S),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=_KEPT_OPEN_S),
            trust_env=False,
            follow_redirects=False,
            verify=False,  # nothing is encrypted on the way to this machine's own ports: no certificates to load
        )

    async def relay(self, scope: Scope, receive: Receive, send: Send, target: Target) -> None:
        """Pass one request on, and its answer back; ends early when the client goes away.

        Raises:
            ConnectionError: nobody listens there. Nothing was sent, the request can be made again.
            TooLargeError, BrokenAnswerError, SilentError: what went wrong before the answer began.
        """
        upload = _Upload(receive)
        request = httpx2.Request(
            scope["method"],
            httpx2.URL(scheme="http", host=ADDRESS, port=target.port).copy_with(raw_path=target.path),
            headers=target.headers,
            content=upload.body() if _has_body(target.headers, scope) else None,
        )
        exchange = asyncio.ensure_future(self._exchange(request, send, target))
        gone = asyncio.ensure_future(upload.client_gone(_has_body(target.headers, scope)))
        try:
            await asyncio.wait((exchange, gone), return_when=asyncio.FIRST_COMPLETED)
            if exchange.done():
                exchange.result()
        except _ClientLeftError:
            return
        finally:
            for task in (exchange, gone):
                task.cancel()
            await asyncio.gather(exchange, gone, return_exceptions=True)

    async def _exchange(self, request: httpx2.Request, send: Send, target: Target) -> None:
        try:
            response = await self._client.send(request, stream=True)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            raise ConnectionError(str(error)) from error
        except httpx2.TimeoutException as error:
            raise SilentError(f"the program did not answer within {SILENCE_S:g} s") from error
        except httpx2.TransportError as error:
            raise BrokenAnswerError(
                f"the program broke the connection off ({error or type(error).__name__})"
            ) from error
        try:
            headers = to_client(response.headers.raw, target.prefix, target.whole_path)
            await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
            async for part in response.aiter_raw():
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        except httpx2.TransportError as error:
            # The answer has begun: all we can do is to break it off as well, which the missing end does.
            log.info("the program on port %d broke its answer off: %s", target.port, error)
        finally:
            await response.aclose()


class _Upload:
    """The body of a request, and word of its sender's leaving: both come through one channel."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._read = asyncio.Event()

    async def body(self) -> AsyncIterator[bytes]:
        size = 0
        more = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise _ClientLeftError  # half a body must not pass for a whole one
            part = message.get("body", b"")
            size += len(part)
            if size > LARGEST_UPLOAD:
                raise TooLargeError(f"the body is larger than {LARGEST_UPLOAD // 2**30} GiB", "send it in parts")
            yield part
            more = message.get("more_body", False)
        self._read.set()

    async def client_gone(self, after_body: bool) -> None:
        """Returns when the client has left."""
        if after_body:
            await self._read.wait()
        message: Message = {"type": "http.request"}
        while message["type"] != "http.disconnect":
            message = await self._receive()


def _has_body(headers: Headers, scope: Scope) -> bool:
    names = {name for name, _ in scope["headers"]}
    return b"content-length" in {name for name, _ in headers} or b"transfer-encoding" in names


def request_target(scope: Scope) -> bytes:
    """Path and query of a request as the client wrote them."""
    query = scope["query_string"]
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    return path + (b"?" + query if query else b"")
