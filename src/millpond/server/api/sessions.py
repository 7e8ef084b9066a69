"""The cookie of a browser's session: set where somebody logs in, taken back where they log out."""

from __future__ import annotations

from starlette.responses import Response

from millpond.server.auth.guard import COOKIE
from millpond.server.auth.logins import SESSION_S


def start_session(answer: Response, secret: str, is_encrypted: bool) -> None:
    """Have the browser keep a session's secret, where no script can read it and no other site has it sent."""
    answer.set_cookie(
        COOKIE, secret, max_age=int(SESSION_S), path="/", secure=is_encrypted, httponly=True, samesite="strict"
    )


def end_session(answer: Response) -> None:
    """Have the browser forget it."""
    answer.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
