"""Bound work that takes long: some at once in all, and one after the other for each user."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from weakref import WeakValueDictionary

from millpond.server.http.user_counts import UserCounts

MOST_OF_ONE: Final = 8
"""Of one user, with those that wait for their turn."""


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
            UnavailableError: the user waits for too many.
        """
        with self.counts.counted(user):
            async with self.own(user):
                yield
