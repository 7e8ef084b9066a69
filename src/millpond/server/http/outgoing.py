"""Requests that the server makes itself: over within a bound, however slowly the other side dribbles, and not diverted.

The timeouts of an HTTP client count from one byte to the next. Here the whole request has one, and what is connected to
is looked at once it is: a name that resolves otherwise the second time gains nothing.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from enum import StrEnum
from typing import Any, Final
from urllib.parse import urlsplit

from millpond.node.host.late_calls import called_if_late

_CONNECTED: Final = "connection.connect_tcp.complete"
_CONNECTS: Final = "connection.connect_tcp.started"
_ENCRYPTED: Final = "connection.start_tls.complete"
"""Events of httpcore, as it passes them to a ``trace`` (an extension of a request)."""


_TRANSLATED: Final = ipaddress.IPv6Network("64:ff9b::/96")
_TRANSLATED_HERE: Final = ipaddress.IPv6Network("64:ff9b:1::/48")
"""What is meant by these is each network's own affair (RFC 8215)."""


class AddressScope(StrEnum):
    """From where an address is reached."""

    MACHINE = "machine"
    LINK = "link"
    """The same wire; also where clouds serve a machine its secrets (169.254.169.254)."""
    PRIVATE = "private"
    WORLD = "world"


def reach_of(address: str) -> AddressScope:
    """From where an IP address is reached.

    Raises:
        ValueError: it is none.
    """
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed in _TRANSLATED_HERE:
            return AddressScope.PRIVATE
        parsed = parsed.ipv4_mapped or parsed.sixtofour or _translated(parsed) or parsed
    if parsed.is_loopback or parsed.is_unspecified:
        return AddressScope.MACHINE
    if parsed.is_link_local or parsed.is_multicast:
        return AddressScope.LINK
    return AddressScope.WORLD if parsed.is_global else AddressScope.PRIVATE


def reaches_of(host: str) -> frozenset[AddressScope]:
    """From where the addresses are reached that a name, or an address, stands for at this moment; none: not known.

    It waits for the machine's resolver.
    """
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return frozenset()
    return frozenset(reach_of(str(address[0])) for *_, address in found)


def _translated(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """What a network that speaks IPv6 alone makes of an address (NAT64, RFC 6052)."""
    return ipaddress.IPv4Address(address.packed[-4:]) if address in _TRANSLATED else None


@contextmanager
def bounded(
    url: str,
    within_s: float,
    may_reach: Callable[[str, AddressScope], bool],
    if_late: Callable[[float, Callable[[], object]], AbstractContextManager[None]] = called_if_late,
) -> Iterator[dict[str, Any]]:
    """The ``extensions`` of one request, on a new connection, that is cut off when its time is over.

    Args:
        may_reach: whether a host may be connected to that turned out to be there. Not asked about a proxy.
        if_late: what calls the function that cuts it off.

    Raises:
        PermissionError: it may not; nothing was sent.
    """
    host = (urlsplit(url).hostname or "").lower()
    sockets: list[socket.socket] = []
    is_direct, is_late = True, False

    def trace(event: str, info: dict[str, Any]) -> None:
        nonlocal is_direct
        if event == _CONNECTS:
            is_direct = info["host"].lower().strip("[]") == host
        elif event in (_CONNECTED, _ENCRYPTED):
            stream = info["return_value"]
            sockets.append(stream.get_extra_info("socket"))
            if event == _CONNECTED and is_direct:
                found = reach_of(stream.get_extra_info("server_addr")[0])
                if not may_reach(host, found):
                    stream.close()
                    raise PermissionError(f"{host} is an address of the kind {found}")
            if is_late:
                cut()

    def cut() -> None:
        nonlocal is_late
        is_late = True
        for each in sockets:
            with suppress(OSError):  # closed, or handed over to the encrypted one
                each.shutdown(socket.SHUT_RDWR)

    with if_late(within_s, cut):
        yield {"trace": trace}
