"""The undo journal: what may change when, and what a trial takes back.

An event or a cycle is a *transaction*: anything may change in it, and what has changed stays. Event handlers check
before they change, so an event that is refused has changed nothing.

Gangs, preemption plans and what-if questions are *trials*, within a transaction or on their own. A trial changes
holdings, which nodes are closed, and the usage of queues and of accounts with limits. Each of these changes records
its inverse; a change of pools, nodes, queues, limits, waiting lines or runs raises while a trial is open. Trials nest,
so that a plan can try and drop parts of itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVarTuple

from millpond.model.errors import InconsistentStateError

Arguments = TypeVarTuple("Arguments")


class Journal:
    """A stack of undo actions shared by everything that a trial changes.

    ``with journal:`` is a transaction. Trials that an exception leaves open in it are rolled back.
    """

    __slots__ = ("_in_transaction", "_trials", "_undo")

    def __init__(self) -> None:
        self._undo: list[tuple[Callable[..., None], tuple[object, ...]]] = []
        self._trials = 0
        self._in_transaction = False

    def __enter__(self) -> None:
        """Begin a transaction: one event, or one cycle, whose changes stay.

        Raises:
            InconsistentStateError: a trial is open.
        """
        if self._trials:
            self.require_no_trial()
        self._in_transaction = True

    def __exit__(self, *_: object) -> None:
        self._in_transaction = False
        while self._trials:
            self.rollback(0)

    def require_no_trial(self) -> None:
        """Refuse a change that has no inverse.

        Raises:
            InconsistentStateError: a trial is open.
        """
        if self._trials:
            raise InconsistentStateError("a change of state that a trial cannot undo")

    def record(self, undo: Callable[[*Arguments], None], *arguments: *Arguments) -> None:
        """Register how to take back the change that is about to be made.

        Raises:
            InconsistentStateError: neither a trial nor a transaction is open.
        """
        if self._trials:
            self._undo.append((undo, arguments))
        elif not self._in_transaction:
            raise InconsistentStateError("a change of state outside a transaction")

    def begin(self) -> int:
        """Open a trial, or one within it, and return its mark."""
        self._trials += 1
        return len(self._undo)

    def commit(self) -> None:
        """Keep what the innermost trial changed; the trial around it can still undo that."""
        self._trials -= 1
        if not self._trials:
            self._undo.clear()

    def rollback(self, mark: int) -> None:
        """Undo everything since ``mark``, newest first, and close that trial."""
        undo = self._undo
        while len(undo) > mark:
            action, arguments = undo.pop()
            action(*arguments)
        self._trials -= 1
