"""Headers by which a browser takes an answer for what it is: not kept, not guessed at, in no frame, running nothing."""

from __future__ import annotations

from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

HARMLESS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""Of answers for programs, many of which hold a token or what a token shows."""
PLAIN_PAGE: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'",
    "Referrer-Policy": "same-origin",
}
"""Of pages for people without a program of their own; the others as above."""


class SecurityHeaders:
    """Routes whose answers have these headers, as far as they do not set others themselves."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._headers = [(name.lower().encode(), value.encode()) for name, value in HARMLESS.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = message.setdefault("headers", [])
                present = {name for name, _ in headers}
                message["headers"] = [*headers, *(pair for pair in self._headers if pair[0] not in present)]
            await send(message)

        await self._app(scope, receive, send_with_headers)
