"""Logging in at an OpenID Connect provider, as a program: begin, have a person finish it in a browser, get a token.

Where the browser runs on this machine, the server sends it back to a port that we listen at for this one login (RFC
8252, section 7.3); elsewhere the person types the code that we show.
"""

from __future__ import annotations

import hashlib
import secrets
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import TracebackType
from urllib.parse import parse_qs, urlsplit

import httpx2

from millpond.client.sdk.transport.login import ask_openly
from millpond.model.errors import NotLoggedInError, TooManyTriesError
from millpond.specs.api.accounts.accounts import LoginInfo
from millpond.specs.api.accounts.sign_on import SignOnInfo, SignOnProgress, SignOnProof, SignOnRequest
from millpond.specs.api.base import API_PREFIX

_LOGINS = f"{API_PREFIX}/oidc/logins"


class Landing:
    """A port of this machine at which the browser arrives once, with what only it has been given."""

    def __init__(self) -> None:
        self.login = ""
        self.code = ""
        self._arrived = threading.Event()
        landing = self

        class Handler(BaseHTTPRequestHandler):
            timeout = 10.0

            def do_GET(self) -> None:
                parameters = parse_qs(urlsplit(self.path).query)
                good = (
                    bool(landing.login) and parameters.get("login") == [landing.login] and bool(parameters.get("code"))
                )
                self.send_response(200 if good else 404)
                self.send_header("Content-Type", "text/plain; charset=utf-8")
                self.send_header("Cache-Control", "no-store")
                self.end_headers()
                self.wfile.write(b"You can close this window: pond goes on by itself.\n" if good else b"Not here.\n")
                if good:
                    landing.code = parameters["code"][0]
                    landing._arrived.set()

            def log_message(self, _template: str, *args: object) -> None:
                """Say nothing: what is logged would hold the code."""

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)

    def __enter__(self) -> Landing:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def wait(self, most_s: float) -> None:
        """Wait until the browser has arrived, or so long."""
        self._arrived.wait(most_s)


class SignOnAttempt:
    """One login, from its beginning to its token.

    Args:
        url: the server's base address, without a slash at the end.
        landing: where the browser arrives; None: the person types a code.
        transport: how requests travel, for tests.
        authority: file with the certificates that may vouch for the server.

    Raises:
        NotFoundError: the server knows no provider.
        UnavailableError: nothing there answers as a Millpond server.
    """

    def __init__(
        self,
        url: str,
        landing: Landing | None = None,
        transport: httpx2.BaseTransport | None = None,
        authority: str = "",
    ) -> None:
        self._url, self._transport, self._authority = url, transport, authority
        self._landing = landing
        self._secret = secrets.token_urlsafe(32)
        request = SignOnRequest(
            challenge=hashlib.sha256(self._secret.encode()).hexdigest(),
            port=None if landing is None else landing.port,
            label=f"pond login on {socket.gethostname()}"[:100],
        )
        self.info = ask_openly(SignOnInfo, url, _LOGINS, request, transport, authority)
        if landing is not None:
            landing.login = self.info.id

    def finish(self, wait: Callable[[float], object] = time.sleep) -> LoginInfo:
        """Wait until the person has finished it.

        Args:
            wait: lets so many seconds pass; may return earlier when it is worth asking.

        Raises:
            NotFoundError: it was not finished in time.
            NotAllowedError: the person, or the server, has refused.
        """
        address = f"{_LOGINS}/{self.info.id}"
        while True:
            proof = SignOnProof(secret=self._secret, code="" if self._landing is None else self._landing.code)
            try:
                said = ask_openly(SignOnProgress, self._url, address, proof, self._transport, self._authority)
            except TooManyTriesError:
                said = SignOnProgress(state="waiting")  # two requests came close together on a slow way
            if said.state == "granted":
                return LoginInfo(user=said.user, token=said.token, expires_at=said.expires_at)
            if proof.code:
                raise NotLoggedInError("the server does not know this login's end", "begin it again")
            wait(self.info.ask_every_s)
