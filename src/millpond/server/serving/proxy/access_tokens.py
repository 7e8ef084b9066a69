"""Access of browsers to the programs of jobs: a link that works once gives a cookie for one job.

A browser cannot send the API token in a header, and a token in an address would stay in histories and logs. So the
bearer of the token asks for a link; it is good for a minute and for one use.

Cookies go with a request whatever page began it, so who began it is asked as well. Under paths all pages of all jobs
are one origin, and only other sites can be kept out. Where each job has an origin, the pages of other jobs are
strangers: they may lead to this one's pages, and nothing more.

Source: W3C Fetch Metadata Request Headers; RFC 6265bis, section 4.1.3 (``__Host-``).
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from dataclasses import dataclass
from typing import Final

from starlette.datastructures import Headers
from starlette.types import Scope

from millpond.node.host.clocks import WallClock
from millpond.server.http.origins import HOST_ONLY, PLATFORM_COOKIES, is_same_origin, job_addressed

LINK_GOOD_FOR_S: Final = 60.0
COOKIE_GOOD_FOR_S: Final = 12 * 3600
_MOST_LINKS: Final = 10_000
COOKIE: Final = f"{PLATFORM_COOKIES}pass"
SAFE: Final = frozenset(("GET", "HEAD", "OPTIONS"))


@dataclass(frozen=True, slots=True)
class AccessToken:
    """Who may see which job's programs.

    Attributes:
        epoch: of the user's account, when it was granted (``records.User.pass_epoch``).
        token: id of the token by which it was asked for; empty where there was none.
    """

    job: str
    user: str
    epoch: int = 0
    token: str = ""


class AccessTokens:
    """Issues links, and cookies for them. Cookies are signed, so that they outlive the server; links do not.

    Args:
        secret: what cookies are signed with; another one makes all of them void.
    """

    def __init__(self, secret: str, clock: WallClock) -> None:
        self._key = hashlib.sha256(b"millpond proxy pass\0" + secret.encode()).digest()
        self._clock = clock
        self._lock = threading.Lock()
        self._links: dict[str, tuple[AccessToken, float]] = {}

    def link(self, granted: AccessToken) -> str:
        """A ticket that is good once, for ``LINK_GOOD_FOR_S`` seconds."""
        now = self._clock()
        with self._lock:
            while self._links and (len(self._links) >= _MOST_LINKS or next(iter(self._links.values()))[1] < now):
                del self._links[next(iter(self._links))]
            ticket = secrets.token_urlsafe(32)
            self._links[ticket] = (granted, now + LINK_GOOD_FOR_S)
        return ticket

    def redeem(self, ticket: str) -> AccessToken | None:
        """What a ticket grants; None when there is no such ticket, or it was used, or is too old."""
        with self._lock:
            granted, until = self._links.pop(ticket, (None, 0.0))
        return granted if self._clock() <= until else None

    def cookie(self, granted: AccessToken) -> str:
        """The value of a cookie that stands for a pass."""
        until = str(int(self._clock()) + COOKIE_GOOD_FOR_S)
        signed = ".".join((until, granted.user.encode().hex(), str(granted.epoch), granted.token.encode().hex()))
        return f"{signed}.{self._signature(granted.job, signed)}"

    def granted(self, job: str, cookie: str) -> AccessToken | None:
        """What a cookie stands for at a job; None when it is not this server's, or too old."""
        signed, _, signature = cookie.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._signature(job, signed).encode()):
            return None
        until, user, epoch, token = signed.split(".")
        if int(until) < self._clock():
            return None
        return AccessToken(job, bytes.fromhex(user).decode(), int(epoch), bytes.fromhex(token).decode())

    def _signature(self, job: str, signed: str) -> str:
        message = "\0".join((job, signed)).encode()
        return hmac.new(self._key, message, hashlib.sha256).hexdigest()


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
