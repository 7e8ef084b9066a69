"""Rules for browsers that come to a job with a cookie: under paths of this server, or at the job's own origin.

Cookies go with a request whatever page began it, so who began it is asked as well. Under paths all pages of all jobs
are one origin, and only other sites can be kept out. Where each job has an origin, the pages of other jobs are
strangers: they may lead to this one's pages, and nothing more.

Source: W3C Fetch Metadata Request Headers; RFC 6265bis, section 4.1.3 (``__Host-``).
"""

from __future__ import annotations

from typing import Final

from starlette.datastructures import Headers
from starlette.types import Scope

from millpond.server.http.origins import HOST_ONLY, PLATFORM_COOKIES, is_same_origin, job_addressed

COOKIE: Final = f"{PLATFORM_COOKIES}pass"
SAFE: Final = frozenset(("GET", "HEAD", "OPTIONS"))


def pass_cookie(scope: Scope) -> str:
    """The name of the cookie that lets a browser in there; by ``__Host-`` browsers take it from no other host."""
    is_own_origin = job_addressed(scope) is not None
    return f"{HOST_ONLY}{COOKIE}" if is_own_origin and scope["scheme"] in ("https", "wss") else COOKIE


def is_begun_here(scope: Scope, headers: Headers) -> bool:
    """Whether a request was begun by a page that may use the cookie sent with it, or by no page at all."""
    crossing = scope["type"] == "websocket" or scope["method"] not in SAFE
    if job_addressed(scope) is None:
        return not crossing or is_same_origin(headers)
    if not is_same_origin(headers):
        return False
    if headers.get("sec-fetch-site", "none") in ("same-origin", "none"):
        return True
    return not crossing and headers.get("sec-fetch-dest") == "document"
