"""The carrier's connection to the server: reopened as often as it breaks, until the server has answered."""

from __future__ import annotations

import http.client
import json
import ssl
import sys
import time
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from millpond.node.carrier.order import CarryOrder

PREFIX = "/api/v1"
SILENCE_S = 60.0
AWAY_S = 24 * 3600.0
"""A server that cannot be reached is waited for so long."""
UNABLE_S = 900.0
"""A server that answers, and cannot do it (its disk is full), is asked again for so long."""
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 30.0
_PASSING = frozenset({408, 421, 425, 429, 500, 502, 503, 504})
_PARTIAL_CHAIN = 0x80000


class NotCarriedError(Exception):
    """The server does not do it, and asking again would not help; the text says why."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class ServerPatience:
    """How long one thing is tried."""

    def __init__(self) -> None:
        self._wait_s = _FIRST_WAIT_S
        self._away_since: float | None = None
        self._unable_since: float | None = None

    def reset(self) -> None:
        """It goes on."""
        self._wait_s, self._away_since, self._unable_since = _FIRST_WAIT_S, None, None

    def away(self, error: BaseException) -> None:
        """Wait, as the server cannot be reached.

        Raises:
            NotCarriedError: that has been so for too long.
        """
        now = time.monotonic()
        if self._away_since is None:
            print(f"carrier: the server is not reached ({error}); trying again", file=sys.stderr, flush=True)
            self._away_since = now
        if now - self._away_since >= AWAY_S:
            raise NotCarriedError(0, f"the server could not be reached for a day: {error}") from error
        self._pause()

    def unable(self, refusal: NotCarriedError) -> None:
        """Wait, as the server cannot do it now.

        Raises:
            NotCarriedError: that has been so for too long.
        """
        now = time.monotonic()
        self._away_since = None
        self._unable_since = self._unable_since or now
        if now - self._unable_since >= UNABLE_S:
            raise refusal
        self._pause()

    def _pause(self) -> None:
        time.sleep(self._wait_s)
        self._wait_s = min(2 * self._wait_s, _LONGEST_WAIT_S)


class Connection:
    """Requests in the name of one run."""

    def __init__(self, order: CarryOrder) -> None:
        parts = urlsplit(order.server)
        self._host, self._port = parts.hostname or "", parts.port
        self._base = parts.path.rstrip("/") + PREFIX
        self._token = order.token
        self._context = _context(order.authority) if parts.scheme == "https" else None
        self._open: http.client.HTTPConnection | None = None

    def ask(self, method: str, path: str, plain: Any = None) -> Any:
        """What the server answers to a body of JSON, once it answers.

        Raises:
            NotCarriedError: it does not do it.
        """
        body = None if plain is None else json.dumps(plain).encode()
        return json.loads(self.ask_bytes(method, path, body, {"Content-Type": "application/json"}) or b"null")

    def ask_bytes(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> bytes:
        """The same with a body, and an answer, of bytes."""
        patience = ServerPatience()
        while True:
            try:
                return self.begin(method, path, None if body is None else [body], len(body or b""), headers).read()
            except NotCarriedError as refusal:
                if refusal.status not in _PASSING:
                    raise
                patience.unable(refusal)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                patience.away(error)

    def begin(
        self, method: str, path: str, body: Iterable[bytes] | None, size: int, headers: dict[str, str]
    ) -> http.client.HTTPResponse:
        """One request, once; the answer is read by the caller, to its end.

        Raises:
            NotCarriedError: the server refuses it.
            OSError, HTTPException: the server cannot be reached, or the connection broke.
        """
        way = self._connected()
        way.putrequest(method, self._base + path)
        for name, value in headers.items():
            way.putheader(name, value)
        way.putheader("Authorization", f"Bearer {self._token}")
        if body is not None:
            way.putheader("Content-Length", str(size))
        way.endheaders()
        try:
            for piece in body or ():
                way.send(piece)
        except OSError:  # it may have refused before all of it came, and said why
            answer = way.getresponse()
            self._check(answer)
            raise
        answer = way.getresponse()
        self._check(answer)
        return answer

    def close(self) -> None:
        """The next request opens it again."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _connected(self) -> http.client.HTTPConnection:
        if self._open is None:
            if self._context is not None:
                self._open = http.client.HTTPSConnection(
                    self._host, self._port, timeout=SILENCE_S, context=self._context
                )
            else:
                self._open = http.client.HTTPConnection(self._host, self._port, timeout=SILENCE_S)
        return self._open

    def _check(self, answer: http.client.HTTPResponse) -> None:
        if answer.status < 400:
            return
        said = answer.read()
        self.close()
        raise NotCarriedError(answer.status, _words(answer, said))


def is_passing(refusal: NotCarriedError) -> bool:
    """Whether it may be granted later."""
    return refusal.status in _PASSING


def _words(answer: http.client.HTTPResponse, said: bytes) -> str:
    """The server's own, or those of what stands before it."""
    try:
        return str(json.loads(said)["error"]["cause"])
    except (ValueError, KeyError, TypeError):
        return f"the server answers {answer.status} {answer.reason}"


def _context(authority: str) -> ssl.SSLContext:
    """Who may vouch for the server: its own certificate does, whether or not it is signed by an authority."""
    context = ssl.create_default_context()
    if authority:
        context.load_verify_locations(cadata=authority)
        context.verify_flags |= ssl.VerifyFlags(_PARTIAL_CHAIN)
    return context
