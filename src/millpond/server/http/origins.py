"""Where a request comes from and to whom it is addressed: the network of a client, the origin of a page, the host name.

Source: W3C Fetch Metadata Request Headers; RFC 6265bis, section 4.1.3 (``__Host-``).
"""

from __future__ import annotations

import ipaddress
from typing import Final

from starlette.datastructures import Headers
from starlette.types import Scope

JOB_ADDRESSED: Final = "job_addressed"
"""In the state of a request: the job at whose own origin it is."""
PLATFORM_COOKIES: Final = "millpond_"
"""Names of all cookies of the platform begin so, or so behind ``HOST_ONLY``."""
HOST_ONLY: Final = "__Host-"
"""Browsers take cookies of such names over HTTPS alone, for all paths, and from no other host."""


def job_addressed(scope: Scope) -> str | None:
    """The job at whose own origin a request arrived; None: at a name of this server's own."""
    job: str | None = scope.get("state", {}).get(JOB_ADDRESSED)
    return job


def is_same_origin(headers: Headers) -> bool:
    """Whether the page that sent this is of this server; programs other than browsers name no origin."""
    origin = headers.get("origin")
    return origin is None or origin.partition("://")[2].lower() == headers.get("host", "").lower()


def network_of(address: str) -> str:
    """The address as what is counted: of an IPv6 one its /64, which is what one machine is given.

    A socket that takes both shows an IPv4 address inside of an IPv6 one, all of them in one /64.
    """
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    return str(parsed.ipv4_mapped or ipaddress.ip_network((parsed, 64), strict=False))
