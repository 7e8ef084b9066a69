"""Bound how much of something one user has under way, and work that takes long: some at once in all, and one after the
other for each user."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final
from weakref import WeakValueDictionary

from millpond.model.errors import BusyError

MOST_OF_ONE: Final = 8
"""Of one user, with those that wait for their turn."""


class UserCounts:
    """Counts what each user has under way, for any thread.

    Args:
        most: so many of one user.
        what: of what, up to the name of the user: ``long answers to``.
        remedy: of the refusal.
    """

    def __init__(self, most: int, what: str, remedy: str) -> None:
        self._most, self._what, self._remedy = most, what, remedy
        self._under_way: Counter[str] = Counter()
        self._lock = threading.Lock()

    def enter(self, user: str) -> None:
        """Count one more of a user, until ``leave``.

        Raises:
            BusyError: the user has too many.
        """
        with self._lock:
            if self._under_way[user] >= self._most:
                raise BusyError(f"{self._most} {self._what} {user} are under way", self._remedy)
            self._under_way[user] += 1

    def leave(self, user: str) -> None:
        """One of those of a user is over."""
        with self._lock:
            self._under_way[user] -= 1
            if not self._under_way[user]:
                del self._under_way[user]

    @contextmanager
    def counted(self, user: str) -> Iterator[None]:
        """One of a user is under way while this lasts.

        Raises:
            BusyError: the user has too many.
        """
        self.enter(user)
        try:
            yield
        finally:
            self.leave(user)


class UserTurns:
    """Says whose turn it is. Belongs to an event loop.

    Args:
        at_once: so many turns at the same time.

    Attributes:
        counts: those of each user, with those that wait for their turn.
    """

    def __init__(self, at_once: int) -> None:
        self._slots = asyncio.Semaphore(at_once)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.counts = UserCounts(MOST_OF_ONE, "long answers to", "wait until one has come")

    @asynccontextmanager
    async def own(self, user: str) -> AsyncIterator[None]:
        """The turn of one that is counted, when it has come."""
        own = self._turns.get(user)
        if own is None:
            own = self._turns[user] = asyncio.Lock()
        async with own, self._slots:
            yield

    @asynccontextmanager
    async def turn(self, user: str) -> AsyncIterator[None]:
        """A turn of a user, when it has come.

        Raises:
            BusyError: the user waits for too many.
        """
        with self.counts.counted(user):
            async with self.own(user):
                yield
