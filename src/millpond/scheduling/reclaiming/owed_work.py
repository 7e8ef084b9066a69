"""Running work to which a guarantee is owed: it leaves by the ordering for those alone who live on that guarantee too.

The rule is that of ``tenancy.displacement``, which each victim is held against when its turn comes. Found beforehand,
it spares searches that would try one after the other in vain.
"""

from __future__ import annotations

import numpy as np

from millpond.scheduling.ordering.base import Displaceable
from millpond.scheduling.placement.arrays import BoolArray, Int64Array
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.displacement import Displacement
from millpond.scheduling.tenancy.queue_node import QueueNode

NOT_KNOWN, NOBODY = -2, -1


class OwedWork:
    """What is owed to the running work of one state, found for each job once in a walk, when it is asked for."""

    def __init__(self, state: State, displacement: Displacement) -> None:
        self._state = state
        self._displacement = displacement
        self._numbers: dict[QueueNode, int] = {}
        self._owing: Int64Array = np.empty(0, dtype=np.int64)
        """(slots,) the number of the queue that owes each its guarantee."""

    def begin(self) -> None:
        """A walk begins: what is owed may be another."""
        self._numbers.clear()
        self._owing = np.empty(0, dtype=np.int64)

    def withhold(self, record: JobRecord, judged: Displaceable) -> None:
        """Let nobody leave for a job to whom a guarantee is owed on which the job does not live."""
        owing, path = self._look(judged.slots), self._state.queues.by_name[record.queue].path
        is_other = np.array([node not in path for node in self._numbers] + [False])  # the last is nobody's
        judged.withhold(judged.slots[is_other[owing[judged.slots]]])

    def are_owed(self, wanted: BoolArray) -> BoolArray:
        """(slots,) to which of these a guarantee is owed."""
        owed: BoolArray = wanted & (self._look(np.flatnonzero(wanted)) > NOBODY)
        return owed

    def _look(self, wanted: Int64Array) -> Int64Array:
        """(slots,) what is owed to those in these slots, and to those that were looked at before."""
        if not len(self._owing):
            self._owing = np.full(self._state.roster.width, NOT_KNOWN)
        owing, records = self._owing, self._state.roster.records
        for slot in wanted[owing[wanted] == NOT_KNOWN].tolist():
            job = records[slot]
            node = None if job is None else self._displacement.owing(job)
            owing[slot] = NOBODY if node is None else self._numbers.setdefault(node, len(self._numbers))
        return owing
