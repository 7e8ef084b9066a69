"""What the ordering has looked for in vain is not looked for again, for as long as nothing has changed meanwhile.

Two things are remembered. Where there is no room for a job even without all work that may leave for it, there is none
for another that asks for the same and for which no other work may leave. And whatever a search came to nothing for, it
comes to nothing for another job of the same queue for which exactly the same work may leave.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np

from millpond.scheduling.cycle.job_placement import Placer
from millpond.scheduling.feasibility.request_classes import RequestClass
from millpond.scheduling.ordering.base import Displaceable
from millpond.scheduling.placement.arrays import NodeMask
from millpond.scheduling.reclaiming.displacement_bounds import DisplacementBounds
from millpond.scheduling.reclaiming.request_bounds import moving_for
from millpond.scheduling.reclaiming.running_work import RunningWork
from millpond.scheduling.records import Group, JobRecord
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.admission import limit_in_the_way
from millpond.scheduling.tenancy.queue_node import QueueNode

Asked: TypeAlias = tuple[RequestClass, int, bytes]
"""What a job asks for, its class of priority, and the nodes that are open to it."""

Reached: TypeAlias = tuple[Asked, bytes, str | tuple[QueueNode, ...]]
"""The same, and whose work may leave for the job: of which owners, and to what guarantees it may be owed.

Or for which queue, once work was turned down, as of some owners more stays for one than for another.
"""

Searched: TypeAlias = tuple[Asked, tuple[str, Group | None] | None, bytes, bytes]
"""As ``Asked``, with the queue and the group of the job where they matter, and who may be ended and moved for it."""


Alike: TypeAlias = tuple[str, Group | None, int, float, tuple[object, ...]]
"""The queue, the group and the class of a job, above which keys it displaces work, and what turns follow from."""


class Judged(NamedTuple):
    """Who may leave for a job.

    Attributes:
        work: None for none.
        who: of ``work``, as it was judged.
    """

    work: Displaceable | None
    who: tuple[bytes, bytes]

    @classmethod
    def of(cls, work: Displaceable | None) -> Judged:
        """Such as a judgement says."""
        if work is None:
            return cls(None, (b"", b""))
        return cls(work, work.who)


class VainSearches:
    """Searches by the ordering on one state that came to nothing in a walk.

    Attributes:
        judged: who may leave for jobs of one task that only differ in what they ask for, see ``Alike``.
    """

    def __init__(self, state: State, placer: Placer, running: RunningWork, bounds: DisplacementBounds) -> None:
        self._state = state
        self._placer = placer
        self._running = running
        self._bounds = bounds
        self._without_room: dict[Reached, float] = {}
        """Above which keys all work leaves that may, and still there is no room: the lowest found."""
        self._searched: set[Searched] = set()
        self.judged: dict[Alike, Judged] = {}
        self._at = (-1, 0)
        """How long the change log was, and how many had been asked to leave, when all of that held."""

    def begin(self) -> None:
        """A walk begins."""
        self._without_room.clear()
        self._searched.clear()
        self.judged.clear()

    def look(self) -> None:
        """Forget what no longer holds."""
        if self._at != (now := self._now):
            self._at = now
            self.begin()

    def hold(self) -> None:
        """A search has left all as it was, though it tried."""
        self._at = self._now

    @property
    def _now(self) -> tuple[int, int]:
        return self._state.cluster.arrays.change_head, len(self._running.leaving)

    def asked(self, record: JobRecord, mask: NodeMask | None) -> Asked | None:
        """What the outcome hangs on beside who may leave; None where that is more.

        More is a limit in the way, cards of some models that are counted, a reservation, several tasks, or lots that
        are drawn for a place.
        """
        state = self._state
        if len(record.tasks) > 1 or state.queues.counts_cards or state.reserved.by_name:
            return None
        if self._placer.draws_lots(record.job) or (state.has_bounds and limit_in_the_way(state, record) is not None):
            return None
        return record.demand, int(record.job.priority), b"" if mask is None else mask.tobytes()

    def reached(self, record: JobRecord, asked: Asked | None) -> Reached | None:
        """Jobs of which this is equal differ in their keys alone; None where others may be moved aside for them too."""
        if asked is None or self.may_move(record):
            return None
        owners = self._bounds.open_to(record).tobytes() if self._bounds.by_queue else b""
        if self._bounds.kept_turns.are_asked:
            return asked, owners, record.queue
        return asked, owners, self._state.queues.by_name[record.queue].guarantors

    def has_no_room(self, record: JobRecord, reached: Reached | None) -> bool:
        """Whether there was no room for one for which no less work may leave."""
        return reached is not None and record.displaces_above >= self._without_room.get(reached, np.inf)

    def note_no_room(self, record: JobRecord, reached: Reached | None) -> None:
        """There is none for a job if all leave that may."""
        if reached is not None:
            above = self._without_room.get(reached, np.inf)
            self._without_room[reached] = min(above, record.displaces_above)

    def alike(self, record: JobRecord) -> Alike | None:
        """Jobs of which this is equal may have the same work leave; None where what they ask for matters too."""
        if self._state.queues.has_guarantees or self.may_move(record):
            return None
        turns = self._bounds.turns
        return record.queue, record.group, int(record.job.priority), record.displaces_above, turns

    def may_move(self, record: JobRecord) -> bool:
        """Whether anyone may be moved aside for a job."""
        moving = moving_for(record.gpu_milli)
        return moving > 0.0 and record.turn >= self._bounds.moved_from(record.job.priority, moving)

    def searched(self, record: JobRecord, asked: Asked | None, judged: Judged) -> Searched | None:
        """Searches of which this is equal come to the same; None where it matters too for whom the job left."""
        if asked is None or record.left_for:
            return None
        # Else who may leave says all of the queue that matters.
        is_by_queue = record.group is not None or not self._bounds.by_queue or self._state.queues.has_guarantees
        own = (record.queue, record.group) if is_by_queue else None
        return asked, own, *judged.who

    def was_vain(self, searched: Searched | None) -> bool:
        """Whether such a search came to nothing."""
        return searched in self._searched

    def note_vain(self, searched: Searched | None) -> None:
        """One has."""
        if searched is not None:
            self._searched.add(searched)
