"""Headers by which a browser takes an answer for what it is: not kept, not guessed at, in no frame, running nothing.

Also what lies between this server and the people who use it: trusted proxies, and the name by which it is known.
"""

from __future__ import annotations

from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from millpond.specs.config.listen import ListenFile

API_HEADERS: Final = {
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
_STAY_ENCRYPTED = f"max-age={365 * 86_400}"


class SecurityHeaders:
    """Routes whose answers have these headers, as far as they do not set others themselves."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._headers = [(name.lower().encode(), value.encode()) for name, value in API_HEADERS.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = message.setdefault("headers", [])
                present = {name for name, _ in headers}
                message["headers"] = [*headers, *(pair for pair in self._headers if pair[0] not in present)]
            await send(message)

        await self._app(scope, receive, send_with_headers)


def seen_from_outside(app: ASGIApp, listening: ListenFile) -> ASGIApp:
    """The application as those outside see it.

    Requests that come through a trusted proxy bear the address and the scheme that it names; what other clients say
    about that is ignored. Where people reach the server by HTTPS, browsers are instructed to stay with it.
    """
    if (listening.public_url or "").startswith("https:"):
        app = _StayEncrypted(app)
    if listening.trusted_proxies:
        app = ProxyHeadersMiddleware(app, trusted_hosts=list(listening.trusted_proxies))  # type: ignore[arg-type,assignment]
    return app


class _StayEncrypted:
    """Adds HSTS to answers that go out encrypted (RFC 6797 forbids it on others)."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http" or scope["scheme"] != "https":
            await self._app(scope, receive, send)
            return

        async def send_marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["Strict-Transport-Security"] = _STAY_ENCRYPTED
            await send(message)

        await self._app(scope, receive, send_marked)
