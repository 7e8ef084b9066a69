"""The guard in front of all routes: authentication, protection against forged requests, and the audit log.

It is a plain ASGI layer, so that it also covers streams and unknown paths. What the caller may do is decided behind it,
by the permit that each route declares. The cookie of a browser's session is set and removed here as well.
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import socket
from collections.abc import Iterable
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millpond.model.errors import UnavailableError
from millpond.server.auth.audit import Act
from millpond.server.auth.components import Security
from millpond.server.auth.logins import SESSION_S
from millpond.server.auth.roles import Caller
from millpond.server.auth.secrets import csrf_of, id_of, is_same
from millpond.server.http.error_responses import error_answer
from millpond.server.http.origins import HOST_ONLY, JOB_ADDRESSED, PLATFORM_COOKIES, is_same_origin, job_addressed
from millpond.server.http.security_headers import API_HEADERS
from millpond.specs.api.accounts.accounts import CSRF_HEADER
from millpond.specs.api.base import API_PREFIX, ErrorBody
from millpond.specs.config.origins import PATHS_ONLY, JobOrigins
from millpond.specs.job.serving import OPEN_PATH, PROXY_PREFIX

COOKIE: Final = f"{PLATFORM_COOKIES}session"
HOST_COOKIE: Final = f"{HOST_ONLY}{COOKIE}"
"""The same over HTTPS: no other host below the same domain, and no attacker on the network, can give a browser one."""
LOGIN_PATH: Final = f"{API_PREFIX}/login"
PORTAL_PREFIX: Final = "/portal/"
PORTAL_AS_WRITTEN: Final = PORTAL_PREFIX.rstrip("/")
"""By people."""
PORTAL_ENTRY: Final = f"{PORTAL_PREFIX}enter"
PORTAL_LOGIN: Final = f"{PORTAL_PREFIX}login"
PORTAL_FILES: Final = f"{PORTAL_PREFIX}static/"
"""What pages consist of beside themselves: nothing that a login would protect."""
OPEN_PATHS: Final = frozenset(
    {PORTAL_AS_WRITTEN, PORTAL_ENTRY, PORTAL_LOGIN, "/"}
    | {"/healthz", "/readyz", "/openapi.json", "/docs", "/llms.txt", LOGIN_PATH}
)
_OIDC_PATHS: Final = ("/oidc/", f"{API_PREFIX}/oidc/")
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_FAILED: Final = 500
"""Answers with this status or a higher one are of requests that came to nothing."""
_SECRET_IN_URL: Final = frozenset({"token", "access_token", "api_key", "apikey", "auth", "authorization", "password"})

CSRF: Final = "csrf"
"""In the state of a request for a page of the portal: what the page's own requests have to show beside the cookie."""
_HOSTS_REMEMBERED: Final = 64
_UNKNOWN_NAME: Final = ErrorBody(
    cause="this server is not known by that name", code="request", remedy="use its address or localhost"
)


class RequestGuard:
    """Lets requests pass whose caller is known, and that address this server by a name it has.

    The second stops web pages that reach a local server through a name of their own (DNS rebinding).

    Args:
        bound_to: the address that the server listens on.
        names: under which people outside know it.
        origins: the names of jobs, at which nothing but their own programs is served.
    """

    def __init__(
        self,
        app: ASGIApp,
        security: Security,
        bound_to: str,
        names: Iterable[str] = (),
        origins: JobOrigins = PATHS_ONLY,
    ) -> None:
        self._app = app
        self._security = security
        own = ("localhost", bound_to, socket.gethostname(), socket.getfqdn())
        self._names = {name.lower() for name in (*own, *names)}
        self._is_our_name = functools.lru_cache(_HOSTS_REMEMBERED)(self._names_us)
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it here."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        is_ours = self._is_our_name(host)
        job = None if is_ours else self._origins.job_at(host)
        if not is_ours and job is None:
            await _turn_away(421, _UNKNOWN_NAME, scope, receive, send)
            return
        scope.setdefault("state", {})[JOB_ADDRESSED] = job
        caller, alone = self._identify(scope, headers)
        refusal = self._refusal(scope, headers, caller, alone)
        if refusal is not None:
            await _turn_away(*refusal, scope, receive, send)
            return
        if caller is not None and caller.token and self._security.accounts.tokens.is_use_due(caller.token):
            await asyncio.to_thread(self._security.accounts.tokens.note_use, caller.token)
        act = Act(self._security.clock(), _address(scope), caller)
        scope["state"]["act"] = act
        if scope["type"] == "http":
            send = self._written_down(act, scope, receive, send)
        await self._app(scope, receive, send)

    def _identify(self, scope: Scope, headers: Headers) -> tuple[Caller | None, bool]:
        """Who asks, and whether a cookie says so alone where that is not enough; see ``_refusal``."""
        session = _session_in(scope, headers)
        caller, by_cookie = self._caller(headers, session)
        alone = by_cookie and not _shows_csrf(headers, session)
        if _asks_for_portal(scope, headers):
            if alone and "sec-fetch-mode" not in headers and not self._is_visit(headers):
                caller, alone = None, False  # the page for a login says why there is no other
            if self._is_visit(headers) or "sec-fetch-mode" not in headers:
                scope["state"][CSRF] = csrf_of(session) if caller is not None else ""
                alone = False
        return caller, alone

    def _written_down(self, act: Act, scope: Scope, receive: Receive, send: Send) -> Send:
        """Sends an answer once its request is in the audit log, as far as it belongs there."""
        is_refused = False

        async def send_written_down(message: Message) -> None:
            nonlocal is_refused
            begins = message["type"] == "http.response.start" and not act.lasts and not act.continues
            if begins and (act.changes or scope["method"] not in _SAFE):
                try:
                    await self._write_down(act, message["status"])
                except UnavailableError as error:  # instead of an answer that nothing would tell of later
                    is_refused = True
                    body = ErrorBody(cause=error.cause, code="unavailable", remedy=error.remedy)
                    await _turn_away(503, body, scope, receive, send)
            if not is_refused:
                await send(message)

        return send_written_down

    async def _write_down(self, act: Act, status: int) -> None:
        """Keep the request in the audit log, if it got as far as a route.

        Its answer waits for that, unless the request failed: a database that took no change takes no entry either.

        Raises:
            UnavailableError: the audit log is damaged.
        """
        entry = act.entry(status)
        if entry is None:
            return
        if act.is_kept_elsewhere or status >= _FAILED:
            self._security.audit.add(entry)
        else:
            await asyncio.wrap_future(self._security.audit.add_now(entry))

    def _caller(self, headers: Headers, session: str) -> tuple[Caller | None, bool]:
        """Who asks, and whether a cookie says so. A request that bears a token is judged by that alone."""
        authorization = headers.get("authorization")
        if authorization is not None:
            scheme, _, token = authorization.partition(" ")
            known = self._security.accounts.caller(token.strip()) if scheme.lower() == "bearer" else None
            return known, False
        return (self._security.accounts.caller(session, session=True), True) if session else (None, False)

    def _is_visit(self, headers: Headers) -> bool:
        """Whether a person goes to a page: the one thing for which a cookie alone is enough, in the portal.

        The programs of jobs may be served under this very name. Their pages can neither read such a page, which opens
        in no frame and in a window group of its own, nor ask for it by a script: then the browser says so, in headers
        that no script can set. Browsers say it where nobody on the way can listen; elsewhere it takes an origin for
        each job.
        """
        if "sec-fetch-mode" in headers:
            return headers["sec-fetch-mode"] == "navigate" and headers.get("sec-fetch-dest") == "document"
        return bool(self._origins.domain)

    def _refusal(
        self, scope: Scope, headers: Headers, caller: Caller | None, alone: bool
    ) -> tuple[int, ErrorBody] | None:
        """Why a request is not looked at; None when it is.

        Args:
            alone: a cookie says who asks, and nothing shows that a page of this server does.
        """
        if job_addressed(scope) is not None:
            return None  # the proxy judges all that comes to a job's own name
        if not scope["path"].startswith(PROXY_PREFIX) and _has_secret_in_url(scope):
            return 400, ErrorBody(
                cause="a secret in the address of a request ends up in logs and histories",
                code="request",
                remedy="send it as the header 'Authorization: Bearer TOKEN', and revoke the one you have sent",
            )
        if caller is None and not _is_judged_elsewhere(scope["path"]) and CSRF not in scope["state"]:
            return 401, ErrorBody(
                cause="the token is missing, wrong, expired or revoked",
                code="unauthorized",
                remedy="log in with `pond login URL`, or send 'Authorization: Bearer TOKEN'",
            )
        if (
            "\0" in scope["path"]
            and not scope["path"].startswith(PROXY_PREFIX)
            and not _asks_for_portal(scope, headers)
        ):
            # Here, as permits look for what a path names before a route has checked its form, and PostgreSQL refuses.
            return 404, ErrorBody(
                cause="an address with a zero byte", code="request", remedy="see /docs for what there is"
            )
        if "authorization" in headers:
            return None  # no web page can make a browser send this
        if _is_judged_elsewhere(scope["path"]) and not _logs_in(scope["path"]):
            return None
        crossing = scope["type"] == "websocket" or scope["method"] not in _SAFE
        # The programs of jobs are served under this very name: to their pages too a cookie alone opens nothing.
        if (alone and not _logs_in(scope["path"])) or (crossing and not is_same_origin(headers)):
            if headers.get(CSRF_HEADER) and "origin" in headers and is_same_origin(headers):
                old = "this page is of an earlier login"
                return 403, ErrorBody(cause=old, code="forbidden", remedy="load it again")
            return 403, ErrorBody(
                cause="this request may come from another web page",
                code="forbidden",
                remedy=f"send the header {CSRF_HEADER} with what the login answered, from a page of this server",
            )
        return None

    def _names_us(self, host: str) -> bool:
        """An address is always this server's (it cannot be rebound); a name must be a known one."""
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower()
        except ValueError:
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in self._names
        return True


def _asks_for_portal(scope: Scope, headers: Headers) -> bool:
    """Whether this may be a person with a browser who wants to see the portal."""
    is_page = scope["type"] == "http" and scope["method"] in ("GET", "HEAD") and scope["path"].startswith(PORTAL_PREFIX)
    return is_page and "authorization" not in headers and job_addressed(scope) is None


def _is_judged_elsewhere(path: str) -> bool:
    """Whether a path needs no login, or the proxy judges requests for it."""
    is_open = path in OPEN_PATHS or path == OPEN_PATH or path.startswith((PORTAL_FILES, "/docs/"))
    return is_open or path.startswith(PROXY_PREFIX) or _logs_in(path)


def _logs_in(path: str) -> bool:
    """Whether people, and programs for them, log in there: it needs no login, but no other page may ask."""
    return path == LOGIN_PATH or path.startswith(_OIDC_PATHS)


def _session_in(scope: Scope, headers: Headers) -> str:
    """The secret of a browser's session; empty when there is none.

    Over HTTPS the name that others cannot set is the only one that counts. Where a proxy speaks plain HTTP to us and is
    not trusted to say so, that name comes as well.
    """
    if "cookie" not in headers:
        return ""
    found = cookie_parser(headers["cookie"])
    session = found.get(HOST_COOKIE, "")
    return session if session or scope["scheme"] in ("https", "wss") else found.get(COOKIE, "")


def _shows_csrf(headers: Headers, session: str) -> bool:
    return is_same(headers.get(CSRF_HEADER, "").encode().hex(), csrf_of(session).encode().hex())


def _has_secret_in_url(scope: Scope) -> bool:
    query = scope.get("query_string", b"").decode("latin-1")
    return any(name.lower() in _SECRET_IN_URL or id_of(value) is not None for name, value in parse_qsl(query))


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else ""


async def _turn_away(status: int, body: ErrorBody, scope: Scope, receive: Receive, send: Send) -> None:
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    answer = error_answer(Headers(scope=scope), status, body, API_HEADERS | headers)
    await answer(scope, receive, send)


def start_session(answer: Response, secret: str, is_encrypted: bool) -> None:
    """Have the browser keep a session's secret, where no script can read it and no other site has it sent."""
    name = _name(is_encrypted)
    answer.set_cookie(
        name, secret, max_age=int(SESSION_S), path="/", secure=is_encrypted, httponly=True, samesite="strict"
    )


def end_session(answer: Response, is_encrypted: bool) -> None:
    """Have the browser forget it."""
    answer.delete_cookie(_name(is_encrypted), path="/", secure=is_encrypted, httponly=True, samesite="strict")


def _name(is_encrypted: bool) -> str:
    return HOST_COOKIE if is_encrypted else COOKIE
