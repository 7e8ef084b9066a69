"""What was asked for last, made when it is asked for and kept up to date by its owner until too many others were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class RecentlyAsked(Generic[Key, Value]):
    """So many values at the most, by what they are of; the one that was not asked for the longest goes first.

    Args:
        make: the value of one that is not kept.
        changed: called with each value that is kept from now on, or no longer.

    Attributes:
        kept: all that are.
    """

    def __init__(
        self, most: int, make: Callable[[Key], Value], changed: Callable[[Value], None] = lambda value: None
    ) -> None:
        self.kept: dict[Key, Value] = {}
        self._most, self._make, self._changed = most, make, changed

    def get(self, key: Key) -> Value:
        """The value of one, kept from now on."""
        found = self.kept.pop(key, None)
        if found is not None:
            self.kept[key] = found
            return found
        while len(self.kept) >= self._most:
            self._changed(self.kept.pop(next(iter(self.kept))))
        made = self.kept[key] = self._make(key)
        self._changed(made)
        return made
