"""Bound how many of something one user has under way at the same time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from millpond.model.errors import UnavailableError


class UserCounts:
    """Counts what each user has under way. Belongs to an event loop.

    Args:
        most: so many of one user.
        what: of what, up to the name of the user: ``long answers to``.
        remedy: of the refusal.
    """

    def __init__(self, most: int, what: str, remedy: str) -> None:
        self._most, self._what, self._remedy = most, what, remedy
        self._under_way: Counter[str] = Counter()

    def enter(self, user: str) -> None:
        """Count one more of a user, until ``leave``.

        Raises:
            UnavailableError: the user has too many.
        """
        if self._under_way[user] >= self._most:
            raise UnavailableError(f"{self._most} {self._what} {user} are under way", self._remedy)
        self._under_way[user] += 1

    def leave(self, user: str) -> None:
        """One of those of a user is over."""
        self._under_way[user] -= 1
        if not self._under_way[user]:
            del self._under_way[user]

    @contextmanager
    def counted(self, user: str) -> Iterator[None]:
        """One of a user is under way while this lasts.

        Raises:
            UnavailableError: the user has too many.
        """
        self.enter(user)
        try:
            yield
        finally:
            self.leave(user)
