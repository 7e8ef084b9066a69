"""Whether a person is present: what of an open page's traffic is a person's doing, and what the page sends by itself.

Pages poll, renew and store things for as long as they are open. What they do so can be distinguished for certain where
browsers or protocols say it, and where a page says the same again and again; the rest counts as a person's doing.

Sources: W3C Fetch Metadata Request Headers; Jupyter's kernel messages (jupyter-client, *Messaging*) and terminals
(terminado); VS Code's calls to its extensions (``extHost.protocol.ts``); Engine.IO's heartbeats (engine.io-protocol).
Recorded with JupyterLab 4.6 and code-server 4.139.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections import OrderedDict
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope

from millpond.node.host.clocks import MonotonicClock
from millpond.server.serving.proxy.access_tokens import SAFE

POLLS_WITHIN_S: Final = 600.0
"""A page that says the same again so soon polls; later, a person did the same thing once more."""
_REMEMBERED: Final = 10_000
_READ_OF_BODY: Final = 64 * 2**10
_READ_OF_MESSAGE: Final = 64 * 2**10
_PAGES: Final = frozenset(("document", "frame", "iframe"))
_BOUNDARY: Final = re.compile(r'boundary="?([^";,]+)')


class Doing(Enum):
    """What a request shows of a person's presence."""

    SOMEBODYS = auto()
    THE_PAGES = auto()
    """Read in the background."""
    EITHERS = auto()
    """Written by a page: its body decides, see ``Polls``."""


def doing_of(scope: Scope) -> Doing:
    """What the head of a request says.

    Browsers say what they want an answer for, but not over plain HTTP from elsewhere than their own machine. There a
    page is what they would rather have as HTML. Programs say nothing of the kind: their calls count as a person's.
    """
    if scope["type"] == "websocket":
        return Doing.THE_PAGES  # what is said there decides, see ``Conversation``
    headers = Headers(scope=scope)
    wanted_for = headers.get("sec-fetch-dest")
    if wanted_for is None:
        is_browser = headers.get("user-agent", "").startswith("Mozilla/")
        wanted_for = "empty" if is_browser and "text/html" not in headers.get("accept", "") else "document"
    if wanted_for in _PAGES:
        return Doing.SOMEBODYS
    return Doing.THE_PAGES if scope["method"] in SAFE else Doing.EITHERS


class Polls:
    """Knows what pages wrote lately, so that what they write again and again is no sign of a person."""

    def __init__(self, clock: MonotonicClock = time.monotonic) -> None:
        self._clock = clock
        self._seen: OrderedDict[bytes, float] = OrderedDict()

    def watch(self, job: str, scope: Scope, receive: Receive, on_use: Callable[[], None]) -> Receive:
        """The same channel; ``on_use`` is called once a body was read that is not one of those read lately."""
        boundary = _BOUNDARY.search(Headers(scope=scope).get("content-type", ""))
        body = bytearray()
        judged = False

        async def watched() -> Message:
            nonlocal judged
            message = await receive()
            if not judged and message["type"] == "http.request":
                body.extend(message.get("body", b""))
                if len(body) > _READ_OF_BODY:
                    judged = True
                    on_use()
                elif not message.get("more_body", False):
                    judged = True
                    said = bytes(body).replace(boundary[1].encode("latin-1"), b"") if boundary else bytes(body)
                    if not self._is_again(job, scope, said):
                        on_use()
            return message

        return watched

    def _is_again(self, job: str, scope: Scope, body: bytes) -> bool:
        """Whether the same was said lately; the query is left out, as many put the time there."""
        said = b"\0".join((job.encode(), scope["method"].encode(), scope["path"].encode(), body))
        key, now = hashlib.sha256(said).digest(), self._clock()
        last = self._seen.pop(key, None)
        self._seen[key] = now
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        return last is not None and now - last < POLLS_WITHIN_S


_BY_THEMSELVES: Final = (
    # What JupyterLab asks a kernel each time it connects, as it does again whenever a connection was lost.
    (
        re.compile(rb"[^?]*/api/kernels/[^?]*/channels(\?|\Z)"),
        re.compile(rb'"msg_type":\s*"(kernel_info|comm_info|history|debug)_request"'),
    ),
    # Pages send terminals their size.
    (re.compile(rb"[^?]*/terminals/websocket/"), re.compile(rb'\A\s*\[\s*"set_size"')),
    (re.compile(rb"[^?]*\?.*EIO="), re.compile(rb"\A[23]\Z")),
    (re.compile(rb""), re.compile(rb"\A\s*(ping|pong)?\s*\Z", re.IGNORECASE)),
)
"""What pages send without a person's doing, by path and query of the WebSocket; the first row that fits counts."""
_VS_CODE: Final = re.compile(rb"[^?]*\?.*reconnectionToken=")
_ACTIVE: Final = re.compile(rb"\$onDidChangeWindowActive[^\[$]{0,8}\[(true|false)\]")
_TOUCHED: Final = re.compile(rb"\$accept(EditorPropertiesChanged|TerminalInteraction)")


class Conversation:
    """What a client says on one WebSocket.

    A window of VS Code notifies its extensions when it was not touched for half a minute, and when it was. All
    else that it says, it says untouched too: it renews its connection, looks at its tunnels, stores its state every few
    seconds. Until then, what it says of cursors and keys counts.

    Args:
        target: path and query, as written.
    """

    def __init__(self, target: bytes) -> None:
        self._is_vs_code = _VS_CODE.match(target) is not None
        self._by_itself = next(said for where, said in _BY_THEMSELVES if where.match(target))
        self._is_active: bool | None = None

    def is_persons(self, message: str | bytes) -> bool:
        """Whether a message of the client is a person's doing."""
        head = message[:_READ_OF_MESSAGE]
        said = head.encode() if isinstance(head, str) else head
        if not self._is_vs_code:
            return self._by_itself.search(said) is None
        if changes := _ACTIVE.findall(said):
            self._is_active = changes[-1] == b"true"
            return True
        return _TOUCHED.search(said) is not None if self._is_active is None else self._is_active
