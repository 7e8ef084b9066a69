"""In front of the routes: the body of a request has a bound and arrives in time, whichever route it is for.

The bound holds before anything is parsed. A body whose length is announced is refused unread, one that is sent in
chunks as soon as it goes beyond. Contents (``/blobs``) are streamed to the disk and have bounds of their own.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millpond.server.http.error_responses import error_answer
from millpond.specs.api.base import API_PREFIX, ErrorBody
from millpond.specs.source_positions import LARGEST_TEXT

LARGEST_BODY: Final = LARGEST_TEXT
"""Bytes."""
LARGEST_BODY_OF_UNKNOWN: Final = 64 * 1024
"""Bytes that may come from a client that has not logged in; what logging in takes is less than a tenth."""
MOST_UNFINISHED_BYTES: Final = 32 * 2**20
"""Of all bodies that have come in part; most come as a whole, and are never counted."""
BODY_WITHIN_S: Final = 60.0
"""A body arrives as a whole within this time; of a content, the next piece."""
_BLOBS: Final = f"{API_PREFIX}/blobs"
_MISSING_BLOBS: Final = f"{_BLOBS}/missing"


class RefusedBodyError(HTTPException):
    """The body of a request is too large or too slow. As an ``HTTPException``, it passes through FastAPI as it is.

    Attributes:
        body: of the answer.
    """

    def __init__(self, status: int, body: ErrorBody) -> None:
        super().__init__(status, body.cause)
        self.body = body


class BodyLimits:
    """Passes requests on to the routes whose bodies keep to the limits."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._unfinished = _Unfinished()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it here."""
        headers = dict(scope["headers"])
        size = headers.get(b"content-length", b"0")
        if scope["type"] != "http" or (size == b"0" and b"transfer-encoding" not in headers):
            await self._app(scope, receive, send)
            return
        if scope["path"].startswith(_BLOBS) and scope["path"] != _MISSING_BLOBS:
            await self._app(scope, _Content(receive).receive, send)
            return
        largest = LARGEST_BODY if scope["state"]["act"].caller else LARGEST_BODY_OF_UNKNOWN
        if int(size) > largest:  # digits alone: the parser has seen to that
            await refuse_body(Request(scope), _too_large(largest))(scope, receive, send)
            return
        body = _Body(receive, largest, self._unfinished)
        try:
            await self._app(scope, body.receive, send)
        finally:
            body.settle()


class _Content:
    """A content on its way in, of whatever size."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._is_whole = False

    async def receive(self) -> Message:
        """The next piece; once it is whole, what else happens to the connection.

        Raises:
            RefusedBodyError: no more has come for too long.
        """
        if self._is_whole:
            return await self._receive()
        message = await self._in_time(asyncio.get_running_loop().time() + BODY_WITHIN_S)
        self._is_whole = not message.get("more_body", False)
        return message

    async def _in_time(self, until: float) -> Message:
        try:
            async with asyncio.timeout_at(until):
                return await self._receive()
        except TimeoutError:
            raise _too_slow() from None


@dataclass(slots=True)
class _Unfinished:
    """How much has come of bodies that are not whole."""

    size: int = 0


class _Body(_Content):
    """A body on its way in, kept in memory until it is whole.

    Args:
        largest: bytes.
        unfinished: counts all bodies together.
    """

    def __init__(self, receive: Receive, largest: int, unfinished: _Unfinished) -> None:
        super().__init__(receive)
        self._largest = largest
        self._unfinished = unfinished
        self._size = 0
        self._counted = 0
        self._until: float | None = None

    async def receive(self) -> Message:
        """As for a content.

        Raises:
            RefusedBodyError: it is too large or too slow, or all of them together are too large.
        """
        message = await super().receive()
        if self._is_whole:
            self.settle()
        return message

    def settle(self) -> None:
        """Count it no longer."""
        self._unfinished.size -= self._counted
        self._counted = 0

    async def _in_time(self, until: float) -> Message:
        self._until = self._until or until
        message = await super()._in_time(self._until)
        size = len(message.get("body", b""))
        self._size += size
        if self._size > self._largest:
            raise _too_large(self._largest)
        if message.get("more_body", False):
            self._counted += size
            self._unfinished.size += size
            if self._unfinished.size > MOST_UNFINISHED_BYTES:
                raise _too_many()
        return message


def refuse_body(request: Request, error: Exception) -> JSONResponse:
    """The answer to a request whose body is refused."""
    assert isinstance(error, RefusedBodyError)
    return error_answer(request.headers, error.status_code, error.body)


def _too_large(largest: int) -> RefusedBodyError:
    size = f"{largest // 2**20} MiB" if largest >= 2**20 else f"{largest // 2**10} KiB"
    remedy = "log in first" if largest == LARGEST_BODY_OF_UNKNOWN else "send files as contents (/blobs)"
    return RefusedBodyError(
        413, ErrorBody(cause=f"the body of the request is larger than {size}", code="too-large", remedy=remedy)
    )


def _too_many() -> RefusedBodyError:
    cause = "the server is receiving too many large bodies at once"
    return RefusedBodyError(503, ErrorBody(cause=cause, code="unavailable", remedy="try again in a moment"))


def _too_slow() -> RefusedBodyError:
    cause = f"the body of the request did not arrive within {BODY_WITHIN_S:g} s"
    return RefusedBodyError(408, ErrorBody(cause=cause, code="too-slow", remedy="try again on a faster connection"))
