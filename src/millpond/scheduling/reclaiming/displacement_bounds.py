"""Bounds that spare searches: which waiting jobs can displace nothing by the ordering, whatever a plan would try.

Running work leaves for a waiting job if that job's ``displaces_above`` is below a bound of its own. So for all jobs of
one queue, pool and class there is one bound, that of the highest they may ask. And for all that ask for the same there
is one (``request_bounds``).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import itemgetter

import numpy as np

from millpond.scheduling.placement.kernels import KernelSet
from millpond.scheduling.placement.selector import Selector
from millpond.scheduling.reclaiming.request_bounds import EVERYWHERE, Asked, BarredNodes, Reach, RequestBounds
from millpond.scheduling.reclaiming.roster import SLOT_OWNER, BoolArray, FloatArray
from millpond.scheduling.reclaiming.running_work import RunningWork
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.displacement import Displacement, Entitlement

Kind = tuple[str, str, int]
"""Queue, pool and class of priority: the same work may leave for all jobs of a kind."""


def kind_of(record: JobRecord) -> Kind:
    """The kind of a job."""
    return record.queue, record.job.pool, record.job.priority


class DisplacementBounds:
    """Bounds on one state during one walk."""

    def __init__(self, state: State, selector: Selector, running: RunningWork, displacement: Displacement) -> None:
        self._state = state
        self._running = running
        self._displacement = displacement
        self.by_queue = False
        self._by_class: dict[int, float] = {}
        self._by_kind: dict[Kind, float] = {}
        self._highest: dict[int, list[tuple[JobRecord, float]]] = {}
        self._stamp: tuple[tuple[int, int], int] | None = None
        """Up to which ``stamp`` the three before hold."""
        self._open: dict[tuple[int, tuple[object, ...]], BoolArray] = {}
        self._open_at: tuple[int, int] | None = None
        """Of which turns ``_open`` is; who is asked to leave closes nobody's."""
        self._requests = RequestBounds(state, selector, running)

    def use_kernels(self, kernels: KernelSet) -> None:
        """Run on other kernels from now on; bounds are the same."""
        self._requests.use_kernels(kernels)

    @property
    def stamp(self) -> tuple[tuple[int, int], int]:
        """Differs whenever other work than before may leave: another queue has its turn, or some was asked."""
        return self._displacement.turns, len(self._running.leaving)

    def begin(self) -> None:
        """A walk begins, with its ``Displacement``."""
        self._stamp = self._open_at = None
        by_queue = self._displacement.is_by_queue(Entitlement.ORDERING)
        self.by_queue = by_queue and not self._state.queues.has_guarantees
        self._requests.begin()

    def exclude(self, record: JobRecord, kept: BarredNodes | None, *, is_long: bool) -> bool:
        """Whether no running work could leave for a job by the ordering.

        Args:
            kept: nodes that are kept from it.
            is_long: there are many lines, so that it pays to look closely for what others ask for too.
        """
        above = record.displaces_above
        if above >= self.of_class(record.job.priority) or (self.by_queue and above >= self.of_kind(record)):
            return True
        if not is_long:
            return False
        if above >= self.of_requests([(record, above, EVERYWHERE)])[0]:
            return True
        reach = self.reach(record, kept)
        return reach is not EVERYWHERE and bool(above >= self.of_requests([(record, above, reach)])[0])

    def of_class(self, priority: int) -> float:
        """A job of this class of priority displaces something only if its ``displaces_above`` is below this."""
        self._forget_outdated()
        found = self._by_class.get(priority)
        if found is None:
            found = self._by_class[priority] = float(self._running.bounds(priority).max(initial=-np.inf))
        return found

    def of_kind(self, record: JobRecord) -> float:
        """A job of this queue, pool and class displaces something only if its ``displaces_above`` is below this."""
        if not self.by_queue:
            return self.of_class(record.job.priority)
        self._forget_outdated()
        kind = kind_of(record)
        if kind not in self._by_kind:
            is_open = partial(self._displacement.is_open, record, by=Entitlement.ORDERING)
            bounds = (bound for victim, bound in self._highest_of(record.job.priority) if is_open(victim))
            self._by_kind[kind] = next(bounds, -np.inf)
        return self._by_kind[kind]

    def _forget_outdated(self) -> None:
        """What was found before other queues had their turn, or other work was asked to leave, holds no longer."""
        stamp = self.stamp
        if stamp != self._stamp:
            self._stamp = stamp
            self._by_class.clear()
            self._by_kind.clear()
            self._highest.clear()

    def _highest_of(self, priority: int) -> list[tuple[JobRecord, float]]:
        """A running job of each owner that has some of a class, and the highest bound of these; the highest first."""
        found = self._highest.get(priority)
        if found is None:
            bounds = self._running.bounds(priority)
            slots = np.flatnonzero(bounds > -np.inf)
            victims = self._state.roster.one_of_each_owner(slots[np.argsort(bounds[slots])])
            found = [(victim, float(bounds[victim.slot])) for victim in victims]
            found.sort(key=itemgetter(1), reverse=True)
            self._highest[priority] = found
        return found

    def open_to(self, record: JobRecord) -> BoolArray:
        """(owners of the roster,) whose work may leave by the ordering for jobs of this queue, pool and class."""
        if self._open_at != self._displacement.turns:
            self._open_at = self._displacement.turns
            self._open.clear()
        turn = record.job.priority, self._displacement.turn_of(record)
        owners = self._open.get(turn)
        if owners is None:
            is_open = partial(self._displacement.is_open, record, by=Entitlement.ORDERING)
            roster, priority = self._state.roster, record.job.priority
            holders = roster.one_of_each_owner(np.flatnonzero(self._running.outside_cells((priority, priority))))
            owners = self._open[turn] = np.zeros(roster.owner_count, dtype=np.bool_)
            owners[[int(roster.slots[SLOT_OWNER, victim.slot]) for victim in holders if is_open(victim)]] = True
        return owners

    def reach(self, record: JobRecord, kept: BarredNodes | None) -> Reach:
        """Whose work may leave for jobs of this queue, pool and class, if some nodes are kept from them."""
        if not self.by_queue:
            return EVERYWHERE if kept is None else Reach((b"", kept.key), None, kept)
        owners = self.open_to(record)
        return Reach((owners.tobytes(), None if kept is None else kept.key), owners, kept)

    def of_requests(self, asked: Sequence[Asked]) -> FloatArray:
        """(asked,) departures make room for each only if its ``displaces_above`` is below this (``RequestBounds``)."""
        return self._requests.of(asked)
