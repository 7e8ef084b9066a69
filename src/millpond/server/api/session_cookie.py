"""The cookie of a browser's session: set at a login, removed at a logout."""

from __future__ import annotations

from starlette.responses import Response

from millpond.server.auth.guard import COOKIE, HOST_COOKIE
from millpond.server.auth.logins import SESSION_S


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
