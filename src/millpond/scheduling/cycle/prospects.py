"""What the first of each waiting line can hope for in a walk, looked at for all lines at once.

Each answer is on the safe side: who is left out by it could not start, nor have room made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from millpond.model.workloads import Priority
from millpond.scheduling.cycle.claims import Claims
from millpond.scheduling.cycle.job_placement import NodeMask, Placer
from millpond.scheduling.ordering.line_table import (
    ACCOUNT,
    ASKED_CPU_MILLI,
    ASKED_MILLI,
    DISPLACES_ABOVE,
    POOL,
    PRIORITY,
    REQUEST,
    BoolArray,
    FloatArray,
    LineTable,
)
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.admission import room_under_limits
from millpond.scheduling.tenancy.queue_rank import QueueRank


@dataclass(frozen=True, slots=True)
class Departures:
    """Whose departure could make room in a walk.

    Attributes:
        lowest_class: that of all work that holds something; a higher class may end it.
        displaced_below: the bound for jobs of the same queue, pool and class, see ``Planner``; None: the ordering
            displaces nothing.
    """

    lowest_class: float
    displaced_below: Callable[[JobRecord], float] | None


class Prospects:
    """The prospects of all lines on the trial ledger as it is: (lines,) each.

    Args:
        departures: who may leave; None: nobody may be asked any more.

    Attributes:
        admitted: whether its queue and its user may let the first of the line start.
        makes_room: whether work may be asked to leave for it.
        fits: whether there may be room for it now.
    """

    def __init__(
        self, state: State, placer: Placer, claims: Claims, standing: QueueRank, departures: Departures | None
    ) -> None:
        self._state = state
        self._placer = placer
        self._claims = claims
        table = self._table = state.waiting.table
        self.admitted, self.makes_room = _admitted(state, table), np.zeros(len(table), dtype=np.bool_)
        if departures is not None:
            guaranteed = standing.guaranteed(table)
            self.admitted |= guaranteed
            self.makes_room |= guaranteed
            self.makes_room |= table.figure(PRIORITY) > departures.lowest_class
            if departures.displaced_below is not None:
                self.makes_room |= table.figure(DISPLACES_ABOVE) < self._by_kind(departures.displaced_below)
        self.fits = self._fit(None, of=self.admitted)

    def _by_kind(self, bound: Callable[[JobRecord], float]) -> FloatArray:
        """(lines,) what holds for all jobs of a queue, a pool and a class of priority."""
        table = self._table
        numbers: dict[str, int] = {}
        queues = [
            0 if account is None else numbers.setdefault(account[0], len(numbers)) for account in table.accounts.items
        ]
        kinds = (np.array(queues)[table.number(ACCOUNT)] * len(table.pools.items) + table.number(POOL)) * len(Priority)
        kinds += table.figure(PRIORITY).astype(np.int64)
        _, rows, of_lines = np.unique(kinds, return_index=True, return_inverse=True)
        firsts = [self._state.waiting.lines[table.keys[row]][0][2] for row in rows.tolist()]
        bounds: FloatArray = np.array([bound(first) for first in firsts])[of_lines]
        return bounds

    def kept_waiting(self) -> tuple[BoolArray, JobRecord | None]:
        """(lines,) where there is room for the first, which is kept for others: for shorter work, or as reserved.

        And the first of those for whom it will be kept for shorter work no longer, if there are any.
        """
        kept, released_first = self._state.held_lines()
        reserved = ~self.makes_room
        reserved &= self.is_kept_off()
        for pool in self._claims.reservations if reserved.any() else ():
            number = self._table.pools.number_of(pool)
            if number is not None:
                here = reserved & (self._table.number(POOL) == number)
                kept |= here & ~self._fit(self._claims.mask_in(pool, is_kept_off=True), of=here & self.fits)
        return kept, released_first

    def is_kept_off(self) -> BoolArray:
        """(lines,) whose first a reservation alone keeps off its nodes."""
        table, claims = self._table, self._claims
        until = [np.inf if pool is None else claims.binds_until(pool) for pool in table.pools.items]
        bound = np.array(until)[table.number(POOL)]
        kept_off: BoolArray = bound < np.inf
        if kept_off.any():
            kept_off &= self._cautious_ends > bound
        return kept_off

    @cached_property
    def _cautious_ends(self) -> FloatArray:
        """(lines,) when the first, started now, will almost surely have ended."""
        ends: FloatArray = self._state.now + self._state.ordering.cautious_lefts(self._table)
        return ends

    def _fit(self, mask: NodeMask | None, of: BoolArray) -> BoolArray:
        """(lines,) whether there may be room for the first on the nodes of a mask; not for lines other than ``of``."""
        numbers, requests = self._table.number(REQUEST), self._table.requests.items
        fits = np.zeros(len(requests), dtype=np.bool_)
        for number in np.flatnonzero(np.bincount(numbers[of], minlength=len(requests))).tolist():
            demand = requests[number]
            fits[number] = demand is not None and self._placer.may_fit(demand, mask)
        of_lines: BoolArray = fits[numbers]
        return of_lines


def _admitted(state: State, table: LineTable) -> BoolArray:
    """(lines,) where no limit keeps out what the first of the line holds at least."""
    if not state.has_bounds:
        return np.ones(len(table), dtype=np.bool_)
    rooms = [(0.0, 0.0) if account is None else room_under_limits(state, *account) for account in table.accounts.items]
    milli, cpu = np.array(rooms).reshape(-1, 2).T[:, table.number(ACCOUNT)]
    admitted: BoolArray = (table.figure(ASKED_MILLI) <= milli) & (table.figure(ASKED_CPU_MILLI) <= cpu)
    return admitted
