"""Which running work may leave for a queue without getting its turn back by that.

Where queues take rounds, a queue at the edge of a round would have its turn first again as soon as its work had left,
so most of that work stays (``Displacement.may_displace``). Once any was turned down for that in a walk, this is found
out for all of it at once, before more plans are searched.
"""

from __future__ import annotations

import numpy as np

from millpond.model.resources import Amount
from millpond.scheduling.placement.arrays import BoolArray, Int64Array
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.displacement import Displacement
from millpond.scheduling.tenancy.queue_rank import RoundsLeft

MOST_JUDGED = 512
"""How much work is judged at most: of more, some may surely leave."""


class KeptTurns:
    """Answers in one walk on one state, kept for as long as they hold."""

    def __init__(self, state: State, displacement: Displacement) -> None:
        self._state = state
        self._displacement = displacement
        self._kind_of: Int64Array = np.zeros(0, dtype=np.int64)
        """(slots,) the number of the kind of work in each slot, see ``_kinds``; -1: not known yet."""
        self._kinds: dict[tuple[str, Amount], int] = {}
        """Numbers of the kinds: the queue of work, with what it holds."""
        self._left: RoundsLeft | None = None
        self._kept: dict[str, BoolArray] = {}
        """For each queue, (kinds,) whether it keeps its turn once work of that kind has left."""
        self._at: tuple[object, ...] = ()
        """The rounds, and the number of kinds, for which ``_left`` and ``_kept`` were found."""

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
            self._left = self._displacement.ranks.rounds_left(list(self._kinds))
        kept = self._kept.get(queue)
        if kept is None:
            kept = self._kept[queue] = self._displacement.ranks.keep_turn(queue, self._left)
        of_slots: BoolArray = kept[self._kind_of[slots]]
        return of_slots
