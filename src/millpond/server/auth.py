"""Who may talk to the server: whoever can read the token in the state directory.

The programs of jobs are judged by the proxy itself, as browsers come to them with a cookie. The check is a plain ASGI
layer, so that it also covers streams and unknown paths.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import secrets
import socket
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from millpond.model.errors import UnavailableError
from millpond.specs.api import ErrorBody, ErrorInfo
from millpond.specs.serving import OPEN_PATH, PROXY_PREFIX

TOKEN_FILE: Final = "token"
ADMITTED: Final = "admitted"
"""In the ``state`` of a request: it bears the token."""
OPEN_PATHS: Final = frozenset({"/healthz", "/readyz", "/openapi.json", "/docs"})


def token_in(state_dir: Path) -> str:
    """The state directory's token; made by chance when there is none. Readable by its owner alone.

    Raises:
        UnavailableError: it cannot be read or written.
    """
    path = state_dir / TOKEN_FILE
    try:
        if path.exists():
            token = path.read_text(encoding="ascii").strip()
            if token:
                return token
        token = secrets.token_urlsafe(32)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(f"{token}\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UnavailableError(
            f"cannot use {path} ({error})", "remove it, or choose another state directory"
        ) from error
    return token


class Guard:
    """Lets requests pass that bear the token and address this server by a name it has.

    The second stops web pages that reach a local server through a name of their own (DNS rebinding).

    Args:
        bound_to: the address that the server listens on.
    """

    def __init__(self, app: ASGIApp, token: str, bound_to: str) -> None:
        self._app = app
        self._digest = hashlib.sha256(token.encode()).digest()
        self._names = {"localhost", bound_to.lower(), socket.gethostname().lower(), socket.getfqdn().lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it here."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        admitted = self._is_token(headers.get("authorization", ""))
        scope.setdefault("state", {})[ADMITTED] = admitted
        if not self._is_our_name(headers.get("host", "")):
            cause, remedy = "this server is not known by that name", "use its address or localhost"
            body = ErrorBody(cause=cause, code="request", remedy=remedy)
            await _refuse(421, body)(scope, receive, send)
        elif not admitted and not _is_open(scope["path"]):
            cause, remedy = "the API token is missing or wrong", "send 'Authorization: Bearer TOKEN'"
            body = ErrorBody(cause=cause, code="unauthorized", remedy=remedy)
            await _refuse(401, body)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _is_token(self, header: str) -> bool:
        scheme, _, token = header.partition(" ")
        digest = hashlib.sha256(token.strip().encode()).digest()
        return scheme.lower() == "bearer" and hmac.compare_digest(digest, self._digest)

    def _is_our_name(self, host: str) -> bool:
        """An address is always ours (nobody can rebind it); a name must be one we know."""
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower()
        except ValueError:
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in self._names
        return True


def _is_open(path: str) -> bool:
    """Whether anybody may come in there, or is judged there."""
    return path in OPEN_PATHS or path == OPEN_PATH or path.startswith(PROXY_PREFIX)


def _refuse(status: int, body: ErrorBody) -> JSONResponse:
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    return JSONResponse(ErrorInfo(error=body).model_dump(), status_code=status, headers=headers)
