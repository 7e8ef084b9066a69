"""Answers that are made while they are sent, and end with their connection."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import cast

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send


class StreamedAnswer(StreamingResponse):
    """An answer whose source is a generator, which is closed at the end, also when the client has left.

    Left to the garbage collector, it would keep its files open until that comes by.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send what the generator makes."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            await cast("AsyncGenerator[bytes]", self.body_iterator).aclose()
