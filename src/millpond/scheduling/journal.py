"""The undo journal: state changes only between ``begin`` and ``commit`` or ``rollback``.

Gangs, preemption plans and what-if questions are tried on the real state and undone if they do not work out. Every
change registers its own inverse; marks nest, so that a plan can try and drop parts of itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millpond.model.errors import InconsistentStateError


class Journal:
    """A stack of undo actions shared by everything that takes part in a transaction."""

    __slots__ = ("_undo", "depth")

    def __init__(self) -> None:
        self._undo: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.depth = 0

    def begin(self) -> int:
        """Open a transaction (or a nested one) and return its mark."""
        self.depth += 1
        return len(self._undo)

    def record(self, undo: Callable[..., None], *arguments: Any) -> None:
        """Register how to take back the change that is about to be made.

        Raises:
            InconsistentStateError: no transaction is open.
        """
        if self.depth == 0:
            raise InconsistentStateError("a change of state outside a transaction")
        self._undo.append((undo, arguments))

    def commit(self) -> None:
        """Keep what was done since the matching ``begin``; an outer transaction can still undo it."""
        self.depth -= 1
        if self.depth == 0:
            self._undo.clear()

    def rollback(self, mark: int) -> None:
        """Undo everything since ``mark``, newest first, and close that transaction."""
        undo = self._undo
        while len(undo) > mark:
            action, arguments = undo.pop()
            action(*arguments)
        self.depth -= 1
