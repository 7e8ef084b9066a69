"""Logins that have begun and are not finished: bounded, each found once by its secret, and expired after minutes.

It is kept in memory: a restart of the server ends what was under way.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from millpond.model.errors import UnavailableError
from millpond.node.host.clocks import WallClock
from millpond.server.http.origins import network_of

T = TypeVar("T")

GOOD_FOR_S: Final = 600.0
"""So long a person has from the beginning, at a command or a link, to the end of their login."""
MOST_OF_ONE_PLACE: Final = 50
"""Many people may share an address; what is begun beyond replaces the oldest of the same place."""
MOST: Final = 5_000
OVER: Final = "this login is over: it was used, is too old, or began before a restart"
"""The error for the key of something that is not kept."""


@dataclass(frozen=True, slots=True)
class _Kept(Generic[T]):
    what: T
    place: str
    until: float


class PendingLogins(Generic[T]):
    """Things by key."""

    def __init__(self, clock: WallClock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[str, _Kept[T]] = {}

    def put(self, key: str, what: T, place: str) -> float:
        """Keep something; returns until when.

        Args:
            place: by what it is counted: the address of a client that has not logged in, or who has.

        Raises:
            UnavailableError: too much waits already.
        """
        place = network_of(place)
        with self._lock:
            now = self._clock()
            self._kept = {key: kept for key, kept in self._kept.items() if now < kept.until}
            mine = [key for key, kept in self._kept.items() if kept.place == place]
            for oldest in mine[: max(len(mine) - MOST_OF_ONE_PLACE + 1, 0)]:
                del self._kept[oldest]
            if len(self._kept) >= MOST:
                raise UnavailableError("too many people are logging in", "try again in some minutes")
            until = now + GOOD_FOR_S
            self._kept[key] = _Kept(what, place, until)
        return until

    def get(self, key: str) -> T | None:
        """What is kept under a key; None when nothing is, or not any more."""
        with self._lock:
            kept = self._kept.get(key)
            return kept.what if kept is not None and self._clock() < kept.until else None

    def take(self, key: str) -> T | None:
        """The same, and it is not kept any longer: only one caller gets it."""
        with self._lock:
            kept = self._kept.pop(key, None)
            return kept.what if kept is not None and self._clock() < kept.until else None
