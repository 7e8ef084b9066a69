"""The headers that pass the proxy, and those that it sets.

Nothing that the platform itself trusts may reach a user's program: not the caller's ``Authorization``, not our cookies.
And nothing that a user's program says may reach beyond its own paths: not its cookies, not its service workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from millpond.server.http.origins import HOST_ONLY, PLATFORM_COOKIES

Headers: TypeAlias = list[tuple[bytes, bytes]]

_PLATFORM_PREFIXES: Final = (PLATFORM_COOKIES.encode(), f"{HOST_ONLY}{PLATFORM_COOKIES}".lower().encode())

_HOP_BY_HOP: Final = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)
"""RFC 9110, section 7.6.1."""
_REPLACED: Final = frozenset((b"authorization", b"cookie", b"forwarded", b"expect"))
_HANDSHAKE: Final = b"sec-websocket-"
_NOT_FROM_PROGRAMS: Final = frozenset(
    (
        b"strict-transport-security",
        b"clear-site-data",
        # A page with the same opener policy as the pages of the platform could look into those that it opens.
        b"cross-origin-opener-policy",
        # These count for the whole origin: another server that answers for it, reports of each request to it (with
        # addresses that let somebody in), what browsers send with each, and what they decompress each answer by.
        b"alt-svc",
        b"nel",
        b"report-to",
        b"reporting-endpoints",
        b"accept-ch",
        b"use-as-dictionary",
        # By these a web server in front (nginx; Apache and lighttpd with X-Sendfile) answers with something else.
        b"x-accel-redirect",
        b"x-sendfile",
        b"x-lighttpd-send-file",
        b"date",  # the server's own stands in each answer, and one is all that a client expects
    )
)
"""What browsers would keep beyond the answer or the page, what a web server in front would do, and a second date."""


@dataclass(frozen=True, slots=True)
class ProxyCaller:
    """What a program learns about its caller.

    Attributes:
        address: of the client, or empty.
        scheme: ``http`` or ``https``, as the client uses it.
        host: the name by which the client calls this server.
    """

    address: str
    scheme: str
    host: str


def to_program(headers: Iterable[tuple[bytes, bytes]], caller: ProxyCaller, prefix: str, access_key: str) -> Headers:
    """The headers of a request as a program gets them.

    Args:
        prefix: where the proxy shows it, without a slash at the end; empty at an origin of its own.
        access_key: proves to it that the request comes through the proxy.
    """
    given = list(headers)
    dropped = _dropped(given)
    kept = [
        (name, value)
        for name, value in given
        if name not in dropped
        and name not in _REPLACED
        and not name.startswith((b"x-forwarded-", b"x-real-ip", _HANDSHAKE))
    ]
    cookies = [pair for name, value in given if name == b"cookie" for pair in _foreign_cookies(value)]
    if cookies:
        kept.append((b"cookie", b"; ".join(cookies)))
    return [
        *kept,
        (b"authorization", b"Bearer " + access_key.encode()),
        (b"x-forwarded-for", caller.address.encode()),
        (b"x-forwarded-proto", caller.scheme.encode()),
        (b"x-forwarded-host", caller.host.encode("latin-1")),
        *([(b"x-forwarded-prefix", prefix.encode())] if prefix else []),
    ]


def to_client(
    headers: Sequence[tuple[bytes, bytes]], prefix: str, whole_path: bool, host: bytes = b"", base: str = ""
) -> Headers:
    """The headers of a program's answer as the client gets them.

    Args:
        prefix: where the proxy shows the program, without a slash at the end; empty at an origin of its own.
        whole_path: the program knows its prefix, and names paths with it.
        host: the name by which the client calls this server, as the program was told.
        base: where the program was told that it is shown, without a slash at the end, if not at the prefix.
    """
    given = [(name.lower(), value) for name, value in headers]
    dropped = _dropped(given) | _NOT_FROM_PROGRAMS
    if any(name == b"transfer-encoding" for name, _ in given):  # which goes before it (RFC 9112, section 6.3)
        dropped |= {b"content-length"}
    if prefix:  # at an origin of its own no other job's pages are within the reach of its service workers
        dropped |= {b"service-worker-allowed"}
    places = [place.encode() for place in (prefix, base) if place]
    passed = []
    for name, value in given:
        if name in dropped:
            continue
        if name == b"set-cookie":
            cookie = _confined(value, prefix)
            if cookie:
                passed.append((name, cookie))
        elif name == b"location" and not whole_path:
            passed.append((name, _below(prefix.encode(), _without_host(value, host), places)))
        else:
            passed.append((name, value))
    return passed


def cookies_of(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """The cookies of a request by name; the first of a name counts, as browsers send the closest path first."""
    found: dict[str, str] = {}
    for name, value in headers:
        if name == b"cookie":
            for pair in value.decode("latin-1").split(";"):
                key, _, content = pair.strip().partition("=")
                found.setdefault(key, content)
    return found


def _dropped(headers: Sequence[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """Hop-by-hop headers: the known ones, and those that this message names as such."""
    named = [part.strip().lower() for name, value in headers if name == b"connection" for part in value.split(b",")]
    return _HOP_BY_HOP | frozenset(named)


def _foreign_cookies(value: bytes) -> list[bytes]:
    pairs = (pair.strip() for pair in value.split(b";"))
    return [pair for pair in pairs if pair and not pair.lower().startswith(_PLATFORM_PREFIXES)]


def _without_host(location: bytes, host: bytes) -> bytes:
    """Where a redirect leads on this server: programs name what they take for their own root by its whole address."""
    scheme, _, rest = location.partition(b"://")
    there, path = rest[: len(host)], rest[len(host) :]
    is_here = bool(host) and scheme.lower() in (b"http", b"https") and there.lower() == host.lower()
    if not is_here or path[:1] not in (b"", b"/", b"?", b"#"):
        return location
    return path if path.startswith(b"/") else b"/" + path


def _below(prefix: bytes, location: bytes, places: Iterable[bytes]) -> bytes:
    """Where a redirect leads; programs that know a place where they are shown may name that by themselves."""
    leaves = not location.startswith(b"/") or location.startswith(b"//")
    named = any(location == place or location.startswith(place + b"/") for place in places)
    return location if leaves or named else prefix + location


def _confined(cookie: bytes, prefix: str) -> bytes | None:
    """A program's cookie, for its own paths on this host only; None when it takes a name of the platform."""
    first, *attributes = (part.strip() for part in cookie.split(b";"))
    if first.lower().startswith(_PLATFORM_PREFIXES):
        return None
    own = f"{prefix}/".encode()
    path = own
    kept = []
    for attribute in attributes:
        name, _, value = attribute.partition(b"=")
        match name.strip().lower():
            case b"domain":
                continue
            case b"path":
                inside = value.strip()
                path = inside if inside.startswith(own) else own
            case _:
                kept.append(attribute)
    return b"; ".join([first, *kept, b"Path=" + path])
