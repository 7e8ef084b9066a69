"""What lies between this server and the people who use it: trusted proxies, and the name by which it is known."""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from millpond.specs.config.listening import ListenRules

_STAY_ENCRYPTED = f"max-age={365 * 86_400}"


def seen_from_outside(app: ASGIApp, listening: ListenRules) -> ASGIApp:
    """The application as those outside see it.

    Requests that come through a trusted proxy bear the address and the scheme that it names; what other clients say
    about that is ignored. Where people reach the server by HTTPS, browsers are instructed to stay with it.
    """
    if listening.public_url.startswith("https:"):
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
