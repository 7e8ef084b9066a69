"""One HTTP request to a program and its answer, both streamed: nothing is kept, a slow reader slows the writer."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import httpcore2
from starlette.types import Message, Receive, Scope, Send

from millpond.engines.task_access import ForeignListenerError
from millpond.model.errors import MillpondError, UnavailableError
from millpond.server.serving.proxy.headers import Headers, to_client
from millpond.server.sessions.relay import until_one_ends
from millpond.server.sessions.task_routes import ADDRESS, UNREACHED, TaskRoute

log = logging.getLogger(__name__)

CONNECT_WITHIN_S: Final = 5.0
SILENCE_S: Final = 600.0
"""A program may take so long until it says anything (more)."""
LARGEST_UPLOAD: Final = 4 * 2**30
"""Bytes of one request."""
_TIMEOUTS: Final = {"connect": CONNECT_WITHIN_S, "read": SILENCE_S, "write": SILENCE_S}
_KEPT_OPEN: Final = 100
_KEPT_OPEN_S: Final = 2.0
"""Shorter than programs keep idle connections, so that hardly one is used just as its other end closes it."""
_ASKED_AGAIN: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""Safe methods (RFC 9110, section 9.2.1)."""
_FINAL: Final = range(200, 600)
"""The statuses of an answer; nobody has asked a program for another protocol here."""
_WITHOUT_CONTENT: Final = frozenset({204, 304})
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
"""What no value of a header may have (RFC 9110, section 5.5)."""


class TooLargeError(MillpondError):
    """The body of a request goes beyond ``LARGEST_UPLOAD``."""


class BrokenAnswerError(UnavailableError):
    """A program closed the connection before it answered, or answered in no way that could be read."""


class SilentError(UnavailableError):
    """A program did not answer in time."""


class _ClientLeftError(Exception):
    """The client that waited for the answer has left."""


@dataclass(frozen=True, slots=True)
class ProxiedRequest:
    """A request as a program gets it.

    Attributes:
        path: with the query, as written.
        prefix: where the proxy shows the program, without a slash at the end; empty at an origin of its own.
        whole_path: the program knows its prefix.
        base: where the program was told that it is shown, without a slash at the end.
    """

    way: TaskRoute
    path: bytes
    headers: Headers
    prefix: str
    whole_path: bool
    base: str


class RequestRelay:
    """Passes requests on; connections to programs are kept open for a while."""

    def __init__(self, network: httpcore2.AsyncNetworkBackend) -> None:
        self._pool = _KeptConnections(network)

    async def relay(
        self, scope: Scope, receive: Receive, send: Send, target: ProxiedRequest, holds: Callable[[], bool]
    ) -> None:
        """Pass one request on, and its answer back; ends early when the client goes away.

        Args:
            holds: asked before each part of the answer is passed on; when it says no, that is broken off.

        Raises:
            ConnectionError: no program listens there, or not the task (``ForeignListenerError``). Nothing was sent, the
                request can be made again.
            TooLargeError, BrokenAnswerError, SilentError: what went wrong before the answer began.
        """
        upload = _Upload(receive)
        has_body = _has_body(target.headers, scope)
        request = httpcore2.Request(
            scope["method"],
            httpcore2.URL(scheme=b"http", host=target.way.host, port=target.way.port, target=target.path),
            headers=_complete(scope["method"], target.headers, has_body),
            content=upload.body() if has_body else None,
            extensions={"timeout": _TIMEOUTS},
        )
        with suppress(_ClientLeftError):
            may_repeat = not has_body and scope["method"] in _ASKED_AGAIN
            exchange = self._exchange(request, send, target, holds, may_repeat=may_repeat)
            await until_one_ends(exchange, upload.client_gone(has_body))

    async def _exchange(
        self,
        request: httpcore2.Request,
        send: Send,
        target: ProxiedRequest,
        holds: Callable[[], bool],
        *,
        may_repeat: bool,
    ) -> None:
        try:
            response = await self._answer(request, may_repeat=may_repeat)
        except ForeignListenerError:
            raise
        except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
            raise ConnectionError(str(error)) from error
        except httpcore2.TimeoutException as error:
            raise SilentError(f"the program did not answer within {SILENCE_S:g} s") from error
        except UNREACHED as error:
            raise BrokenAnswerError(
                f"the program broke the connection off ({error or type(error).__name__})"
            ) from error
        try:
            if response.status not in _FINAL:
                raise BrokenAnswerError(f"the program answered with status {response.status}")
            await send({"type": "http.response.start", "status": response.status, "headers": _passed(response, target)})
            async for part in response.aiter_stream():
                if not holds():
                    log.info("the answer of %s is broken off: its reader may no longer read it", target.way.task.job)
                    return
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        except UNREACHED as error:
            # The answer has begun: all we can do is to break it off as well, which the missing end does.
            log.info("the program of %s broke its answer off: %s", target.way.task.job, error)
        finally:
            await response.aclose()

    async def _answer(self, request: httpcore2.Request, *, may_repeat: bool) -> httpcore2.Response:
        """The beginning of the answer.

        A program may have closed a kept connection, of which we hear late where its bytes are relayed. What may be
        repeated then goes over the next one, up to one that is new (RFC 9112, section 9.3.1).
        """
        is_new = not may_repeat

        async def note(event: str, _: object) -> None:
            nonlocal is_new
            is_new = is_new or event == "connection.connect_tcp.complete"

        if may_repeat:
            request.extensions["trace"] = note
        while True:
            try:
                return await self._pool.handle_async_request(request)
            except (httpcore2.RemoteProtocolError, httpcore2.ReadError, httpcore2.WriteError):
                if is_new:
                    raise


class _KeptConnection(httpcore2.AsyncHTTPConnection):
    """A connection that is closed where more than the answer was read: the next request would get the rest."""

    def has_expired(self) -> bool:
        inner = self._connection
        has_surplus = isinstance(inner, httpcore2.AsyncHTTP11Connection) and any(inner._h11_state.trailing_data)
        return super().has_expired() or has_surplus


class _KeptConnections(httpcore2.AsyncConnectionPool):
    """Connections to programs; what arrives on an idle one closes it as well (``is_readable`` of its stream)."""

    def __init__(self, network: httpcore2.AsyncNetworkBackend) -> None:
        super().__init__(max_connections=None, max_keepalive_connections=_KEPT_OPEN)
        self._network = network

    def create_connection(self, origin: httpcore2.Origin) -> httpcore2.AsyncHTTPConnection:
        return _KeptConnection(origin, keepalive_expiry=_KEPT_OPEN_S, network_backend=self._network)


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


def _passed(response: httpcore2.Response, target: ProxiedRequest) -> Headers:
    """The headers of an answer; the length of a content that is not sent would be missed at its end.

    Raises:
        BrokenAnswerError: one is none.
    """
    host = dict(target.headers).get(b"host", b"")
    headers = to_client(response.headers, target.prefix, target.whole_path, host, target.base)
    for name, value in headers:
        if _CONTROL.search(value):
            raise BrokenAnswerError(f"the program answered with a control character in {name.decode('latin-1')}")
    bare = response.status in _WITHOUT_CONTENT
    return [header for header in headers if not (bare and header[0] == b"content-length")]


def _has_body(headers: Headers, scope: Scope) -> bool:
    names = {name for name, _ in scope["headers"]}
    return b"content-length" in {name for name, _ in headers} or b"transfer-encoding" in names


def _complete(method: str, headers: Headers, has_body: bool) -> Headers:
    """With what HTTP demands: a host, how the end of a body is known, and no request after a HEAD.

    Programs that answer a HEAD with content may send it at any later time, for the next answer on the connection.
    """
    names = {name for name, _ in headers}
    complete = list(headers)
    if b"host" not in names:
        complete.append((b"host", ADDRESS.encode()))
    if has_body and b"content-length" not in names:
        complete.append((b"transfer-encoding", b"chunked"))
    if method == "HEAD":
        complete.append((b"connection", b"close"))
    return complete


def request_target(scope: Scope) -> bytes:
    """Path and query of a request as the client wrote them."""
    query = scope["query_string"]
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    return path + (b"?" + query if query else b"")
