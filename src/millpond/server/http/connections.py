"""The open connections of the HTTP server: how many there may be, and how long each may wait for a request.

A connection waits from its beginning until the head of a request is complete, and again from the end of the answer on.
A client sends a head within milliseconds. So the connection that has waited longest is the one that leaves: at its
deadline, or earlier, where its address or the server has no room for a newcomer. Until then it is left alone: a client
that is turned away comes again at once, and that costs more than to hold it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final, Protocol

from millpond.node.host import open_files
from millpond.node.host.clocks import MonotonicClock
from millpond.server.http.held_messages import HeldMessages
from millpond.server.http.origins import network_of

HEAD_WITHIN_S: Final = 10.0
"""The head of a request is complete within this time, and before it the TLS handshake."""
STALLED_S: Final = 300.0
"""A client that takes nothing of an answer for so long is gone."""
MOST_UNFINISHED_BYTES: Final = 16 * 2**20
"""Of all heads that have come in part. Nearly all come as a whole, and are never counted."""
MOST_UNTAKEN_BYTES: Final = 256 * 2**20
"""Of all answers that their clients do not take; those that have taken nothing for longest are broken off beyond."""
MOST_HANDSHAKES: Final = 512
"""TLS handshakes under way; each takes 50 KiB."""
_MOST_PER_ADDRESS: Final = 4_096
_MOST: Final = 16_384
_KEPT_FOR_OTHERS: Final = 4
"""One part in so many of the files that the server may open is not for connections."""


class ClientConnection(Protocol):
    """One client's connection."""

    def abort(self) -> None:
        """Close it at once; ``Connections.closed`` follows."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """How many connections there may be.

    Attributes:
        per_address: from one IPv4 address or one IPv6 network of 64 bits.
    """

    total: int
    per_address: int

    @staticmethod
    def of_this_process() -> ConnectionLimits:
        """What the limit of open files allows."""
        total = min(open_files.limit() * (_KEPT_FOR_OTHERS - 1) // _KEPT_FOR_OTHERS, _MOST)
        return ConnectionLimits(total, min(_MOST_PER_ADDRESS, total // 2))


@dataclass(slots=True)
class _Address:
    """The connections of one address; ``waiting`` has the one that has waited longest first."""

    count: int = 0
    waiting: dict[ClientConnection, None] = field(default_factory=dict)


class Connections:
    """All connections of one server; belongs to its event loop.

    Args:
        trusted: addresses and networks of proxies, which bring all users: no bound of one address holds there.

    Attributes:
        messages: what those hold that have become WebSockets.
    """

    def __init__(self, limits: ConnectionLimits, clock: MonotonicClock, trusted: Iterable[str] = ()) -> None:
        self.messages = HeldMessages()
        self._limits = limits
        self._clock = clock
        self._trusted: list[IPv4Network | IPv6Network] = [ip_network(network) for network in trusted]
        self._networks: dict[ClientConnection, str] = {}
        self._addresses: dict[str, _Address] = {}
        self._waiting: dict[ClientConnection, float] = {}
        self._stalled: dict[ClientConnection, float] = {}
        self._untaken: dict[ClientConnection, int] = {}
        self._untaken_bytes = 0
        self._handshakes: dict[ClientConnection, None] = {}
        self._unfinished: dict[ClientConnection, int] = {}
        self._unfinished_bytes = 0

    def opened(self, connection: ClientConnection, address: str) -> None:
        """A connection has come, and waits; another one, or itself, is closed where there is no room for it."""
        network = network_of(address)
        known = self._addresses.setdefault(network, _Address())
        known.count += 1
        self._networks[connection] = network
        self.waits(connection)
        if known.count > self._limits.per_address and not self._is_trusted(address):
            self._close(next(iter(known.waiting)))
        elif len(self._networks) > self._limits.total:
            self._close(next(iter(self._waiting)))

    def waits(self, connection: ClientConnection) -> None:
        """It waits for a request."""
        network = self._networks.get(connection)
        if network is not None:
            self._waiting[connection] = self._clock()
            self._addresses[network].waiting[connection] = None

    def shakes_hands(self, connection: ClientConnection) -> None:
        """Its TLS handshake has begun; the oldest one gives way where there are too many."""
        self._handshakes[connection] = None
        if len(self._handshakes) > MOST_HANDSHAKES:
            self._close(next(iter(self._handshakes)))

    def is_encrypted(self, connection: ClientConnection) -> None:
        """Its handshake is over."""
        self._handshakes.pop(connection, None)

    def begins(self, connection: ClientConnection, size: int) -> None:
        """A part of a head has come; the connection is closed where all such parts are too much together."""
        if connection not in self._waiting:
            return
        self._unfinished[connection] = self._unfinished.get(connection, 0) + size
        self._unfinished_bytes += size
        if self._unfinished_bytes > MOST_UNFINISHED_BYTES:
            self._close(connection)

    def works(self, connection: ClientConnection) -> None:
        """The head of a request is complete."""
        if self._waiting.pop(connection, None) is not None:
            del self._addresses[self._networks[connection]].waiting[connection]
            self._unfinished_bytes -= self._unfinished.pop(connection, 0)

    def stalls(self, connection: ClientConnection, size: int) -> None:
        """Its client does not take what is sent; those that have not for longest leave where all is too much.

        Args:
            size: bytes that wait for it.
        """
        self.flows(connection)
        self._stalled[connection] = self._clock()
        self._untaken[connection] = size
        self._untaken_bytes += size
        while self._untaken_bytes > MOST_UNTAKEN_BYTES:
            self._close(next(iter(self._stalled)))

    def flows(self, connection: ClientConnection) -> None:
        """Its client takes what is sent."""
        self._stalled.pop(connection, None)
        self._untaken_bytes -= self._untaken.pop(connection, 0)

    def closed(self, connection: ClientConnection) -> None:
        """It is gone."""
        self.works(connection)
        self.flows(connection)
        self.is_encrypted(connection)
        self.messages.forget(connection)
        network = self._networks.pop(connection, None)
        if network is not None:
            known = self._addresses[network]
            known.count -= 1
            if not known.count:
                del self._addresses[network]

    def close_overdue(self) -> None:
        """Close what has waited, or been stalled, for too long."""
        for since_by_connection, longest_s in ((self._waiting, HEAD_WITHIN_S), (self._stalled, STALLED_S)):
            overdue = self._clock() - longest_s
            late = []
            for connection, since in since_by_connection.items():
                if since > overdue:
                    break
                late.append(connection)
            for connection in late:
                self._close(connection)

    def _close(self, connection: ClientConnection) -> None:
        self.closed(connection)  # at once: more may come before the event loop says that it is
        connection.abort()

    def _is_trusted(self, address: str) -> bool:
        return bool(self._trusted) and any(ip_address(address) in network for network in self._trusted)


class CountedConnection:
    """A client's connection as ``Connections`` knows it, whichever protocol speaks on it at the moment.

    Attributes:
        all: counts it.
    """

    def __init__(self, connections: Connections) -> None:
        self.all = connections
        self._abort: Callable[[], object] | None = None

    def opened(self, address: str, abort: Callable[[], object]) -> None:
        """Count it, or note that it is encrypted now.

        Args:
            abort: closes it at once.
        """
        is_new, self._abort = self._abort is None, abort
        if is_new:
            self.all.opened(self, address)
        else:
            self.all.is_encrypted(self)

    def abort(self) -> None:
        """Close it at once."""
        if self._abort is not None:
            self._abort()
