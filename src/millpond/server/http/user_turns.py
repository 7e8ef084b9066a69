"""Bounds on what users have under way: a most for each user, and turns for work that takes long.

Turns are taken one after the other by each user, and by some users at once.
"""

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
"""How many long answers one user may have under way, those that wait for their turn among them."""


class UserCounts:
    """Counts what each user has under way, for any thread.

    Args:
        most: how many one user may have at the same time.
        what: what is counted, as the refusal says it before the name of the user: ``long answers to``.
        remedy: the remedy of the refusal.
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
        """Count one less of a user."""
        with self._lock:
            self._under_way[user] -= 1
            if not self._under_way[user]:
                del self._under_way[user]

    @contextmanager
    def counted(self, user: str) -> Iterator[None]:
        """Count one more of a user within the block.

        Raises:
            BusyError: the user has too many.
        """
        self.enter(user)
        try:
            yield
        finally:
            self.leave(user)


class UserTurns:
    """Gives turns to users. Belongs to an event loop.

    Args:
        at_once: how many turns there are at the same time.

    Attributes:
        counts: the turns of each user, those that are waited for among them.
    """

    def __init__(self, at_once: int) -> None:
        self._slots = asyncio.Semaphore(at_once)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.counts = UserCounts(MOST_OF_ONE, "long answers to", "wait until one has come")

    @asynccontextmanager
    async def own(self, user: str) -> AsyncIterator[None]:
        """Wait for a turn of a user that the caller has counted in ``counts``, and hold it within the block."""
        own = self._turns.get(user)
        if own is None:
            own = self._turns[user] = asyncio.Lock()
        async with own, self._slots:
            yield

    @asynccontextmanager
    async def turn(self, user: str) -> AsyncIterator[None]:
        """Count a turn of a user, wait for it, and hold it within the block.

        Raises:
            BusyError: the user waits for too many.
        """
        with self.counts.counted(user):
            async with self.own(user):
                yield
