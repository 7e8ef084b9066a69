"""Answers of the proxy itself in place of a program's: pages for people, JSON for programs."""

from __future__ import annotations

from dataclasses import asdict
from html import escape
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, JSONResponse, Response

from millpond.model.errors import MillpondError
from millpond.server.http.error_responses import language_asked
from millpond.server.http.pages import page
from millpond.server.phrases.phrasebook import phrase_in
from millpond.specs.api.base import ErrorBody, ErrorInfo

LOOK_AGAIN_S: Final = 2
PLATFORM_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'",
}
"""Headers of all answers that the proxy makes itself."""
_CODES: Final = {
    401: "unauthorized",
    403: "unauthorized",
    404: "not-found",
    409: "conflict",
    410: "conflict",
    413: "request",
    502: "unavailable",
    503: "unavailable",
    504: "unavailable",
}
"""By status, as in ``ErrorBody.code``."""


def trouble(
    asked: Headers, status: int, error: MillpondError, html: bool, look_again: bool = False, portal: str = ""
) -> Response:
    """Why a program cannot be shown, in the language that is asked for.

    Args:
        asked: the headers of the request.
        html: the client takes a page; otherwise it gets the API's error body.
        look_again: it may be otherwise in a moment; the page looks by itself.
        portal: the page of the portal that opens the program again; empty: there is none at this origin.
    """
    language = language_asked(asked)
    cause, remedy = phrase_in(language, error.cause), phrase_in(language, error.remedy)
    headers = {**PLATFORM_HEADERS, "Content-Language": language}
    if look_again:
        headers["Retry-After"] = str(LOOK_AGAIN_S)
    if not html:
        body = asdict(ErrorInfo(error=ErrorBody(cause=cause, code=_CODES[status], remedy=remedy)))
        return JSONResponse(body, status_code=status, headers=headers)
    again = f'<meta http-equiv="refresh" content="{LOOK_AGAIN_S}">' if look_again else ""
    more = f'<p class="more">{escape(remedy)}</p>' if remedy else ""
    if portal:
        more += f'<p><a href="{escape(portal)}">{escape(phrase_in(language, "or in the portal"))}</a></p>'
    return HTMLResponse(page(again, cause, more, language), status_code=status, headers=headers)


def forwarding(path: str) -> Response:
    """Leads on to a path.

    By a page and not by a redirect: a browser that follows a link from elsewhere sends a ``SameSite=Strict`` cookie
    only with a request that a page of this server began.
    """
    leading = f'<meta http-equiv="refresh" content="0; url={escape(path)}">'
    link = f'<p><a href="{escape(path)}">{escape(path)}</a></p>'
    return HTMLResponse(page(leading, "Opening", link), headers=PLATFORM_HEADERS)
