"""Before which running work it is the turn of a queue also once that has left: the rest stays, whoever asks.

Where queues take rounds and the next work to leave is that of queues at the edge of a round, hardly any may: each would
go first again without it. Once some was turned down in a walk, that is asked here of all such work at once, before
anything more is searched.
"""

from __future__ import annotations

import numpy as np

from millpond.model.resources import Amount
from millpond.scheduling.placement.arrays import BoolArray, Int64Array
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.displacement import Displacement
from millpond.scheduling.tenancy.queue_rank import RoundsLeft

MOST_JUDGED = 512
"""Of so much work at most it is asked: of more, some surely may leave."""


class KeptTurns:
    """Answers in one walk on one state, kept for as long as they hold."""

    def __init__(self, state: State, displacement: Displacement) -> None:
        self._state = state
        self._displacement = displacement
        self._kind_of: Int64Array = np.zeros(0, dtype=np.int64)
        """(slots,) the number of the kind of the work of each; -1: not known yet."""
        self._kinds: dict[tuple[str, Amount], int] = {}
        """Of which queue work is, and what it holds."""
        self._left: RoundsLeft | None = None
        self._kept: dict[str, BoolArray] = {}
        """(kinds,) by queue; these two hold"""
        self._at: tuple[object, ...] = ()
        """of such rounds, for so many kinds."""

    def begin(self) -> None:
        """A walk begins."""
        self._kind_of = np.full(self._state.roster.width, -1, dtype=np.int64)
        self._kinds.clear()
        self._at = ()

    @property
    def are_asked(self) -> bool:
        """Whether any work was turned down in this walk."""
        return self._displacement.turned_down > 0

    def of(self, queue: str, slots: Int64Array) -> BoolArray | None:
        """(slots,) whether a queue keeps its turn without the work of each; None: that is not asked."""
        if not self.are_asked or not 0 < len(slots) <= MOST_JUDGED:
            return None
        for slot in slots[self._kind_of[slots] < 0].tolist():
            if (record := self._state.roster.records[slot]) is not None:
                kind = record.queue, self._displacement.held(record)
                self._kind_of[slot] = self._kinds.setdefault(kind, len(self._kinds))
        at = *self._displacement.rounds, len(self._kinds)
        if self._left is None or self._at != at:
            self._at = at
            self._kept.clear()
            self._left = self._displacement.rounds_left(list(self._kinds))
        kept = self._kept.get(queue)
        if kept is None:
            kept = self._kept[queue] = self._displacement.keep_turn(queue, self._left)
        of_slots: BoolArray = kept[self._kind_of[slots]]
        return of_slots
