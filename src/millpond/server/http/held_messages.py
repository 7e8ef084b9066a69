"""Bytes of messages of WebSockets that are held: those that have come in part, and those that are not passed on yet.

A message may be large, and its sender or its receiver may stop in the middle of it. So all that is held together is
bounded, and where it is too much, the connection leaves of which no message has been passed on for longest.
"""

from __future__ import annotations

from typing import Final, Protocol

MOST_HELD_BYTES: Final = 256 * 2**20


class MessageSource(Protocol):
    """A connection on which messages come."""

    def abort(self) -> object:
        """Close it at once."""


class HeldMessages:
    """What the connections of one event loop hold."""

    def __init__(self) -> None:
        self._bytes: dict[MessageSource, int] = {}
        self._total_bytes = 0

    def grow(self, source: MessageSource, size: int) -> None:
        """More has come; connections are broken off where all is too much.

        Args:
            size: bytes.
        """
        self._bytes[source] = self._bytes.get(source, 0) + size
        self._total_bytes += size
        while self._total_bytes > MOST_HELD_BYTES:
            longest = next(iter(self._bytes))
            self.forget(longest)
            longest.abort()

    def passed_on(self, source: MessageSource, rest: int) -> None:
        """Its messages were passed on.

        Args:
            rest: bytes that have come behind them.
        """
        if source in self._bytes:
            self.forget(source)
            if rest:
                self.grow(source, rest)

    def forget(self, source: MessageSource) -> None:
        """It is gone, or holds nothing."""
        self._total_bytes -= self._bytes.pop(source, 0)
