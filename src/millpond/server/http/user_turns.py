"""Bound work that takes long: some at once in all, and one after the other for each user."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from weakref import WeakValueDictionary

from millpond.model.errors import UnavailableError

MOST_OF_ONE: Final = 8
"""Of one user, with those that wait for their turn."""


class UserTurns:
    """Says whose turn it is. Belongs to an event loop.

    Args:
        at_once: so many turns at the same time.
    """

    def __init__(self, at_once: int) -> None:
        self._slots = asyncio.Semaphore(at_once)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._under_way: Counter[str] = Counter()

    def enter(self, user: str) -> None:
        """Count one more of a user, until ``leave``.

        Raises:
            UnavailableError: the user waits for too many.
        """
        if self._under_way[user] >= MOST_OF_ONE:
            raise UnavailableError(f"{MOST_OF_ONE} long answers to {user} are under way", "wait until one has come")
        self._under_way[user] += 1

    def leave(self, user: str) -> None:
        """One of those of a user is over."""
        self._under_way[user] -= 1
        if not self._under_way[user]:
            del self._under_way[user]

    @asynccontextmanager
    async def own(self, user: str) -> AsyncIterator[None]:
        """The turn of one that has entered, when it has come."""
        own = self._turns.get(user)
        if own is None:
            own = self._turns[user] = asyncio.Lock()
        async with own, self._slots:
            yield

    @asynccontextmanager
    async def turn(self, user: str) -> AsyncIterator[None]:
        """A turn of a user, when it has come.

        Raises:
            UnavailableError: the user waits for too many.
        """
        self.enter(user)
        try:
            async with self.own(user):
                yield
        finally:
            self.leave(user)
