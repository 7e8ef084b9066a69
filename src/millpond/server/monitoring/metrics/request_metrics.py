"""Before everything else: how requests are answered, and how soon."""

from __future__ import annotations

import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millpond.server.monitoring.metrics.instruments import Instruments
from millpond.server.serving.proxy.browsers import job_addressed
from millpond.specs.job.serving import PROXY_PREFIX


class RequestMetrics:
    """An application whose answers are counted. WebSockets are not: they last as long as people like."""

    def __init__(self, app: ASGIApp, instruments: Instruments) -> None:
        self._app = app
        self._instruments = instruments

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = time.perf_counter()

        async def send_counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                took_s = time.perf_counter() - begun
                self._instruments.answered(scope["method"], _route(scope), message["status"], took_s)
            await send(message)

        await self._app(scope, receive, send_counted)


def _route(scope: Scope) -> str:
    """What was asked for, as one of few words: names in paths would be as many labels."""
    route = getattr(scope.get("route"), "path", None)
    if isinstance(route, str):
        return route
    is_proxied = scope["path"].startswith(PROXY_PREFIX) or job_addressed(scope) is not None
    return f"{PROXY_PREFIX}{{job}}" if is_proxied else "none"
