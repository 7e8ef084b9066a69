"""Which waiting lines a walk can leave out, found for all lines at once.

Each answer is on the safe side: the first of a line that is left out could not start, nor have room made for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from millpond.model.workloads import Priority
from millpond.scheduling.cycle.claims import Claims
from millpond.scheduling.cycle.job_placement import Placer
from millpond.scheduling.cycle.waiting_requests import WaitingRequests
from millpond.scheduling.ordering.line_table import (
    ACCOUNT,
    ASKED_CPU_MILLI,
    ASKED_MILLI,
    DISPLACES_ABOVE,
    GROUPED,
    KEY,
    POOL,
    PRIORITY,
    QUEUE,
    REQUEST,
    TASKS,
)
from millpond.scheduling.placement.arrays import BoolArray, FloatArray, Int64Array, NodeMask
from millpond.scheduling.reclaiming.displacement_bounds import DisplacementBounds
from millpond.scheduling.reclaiming.request_bounds import EVERYWHERE, Asked, Reach
from millpond.scheduling.records import Group, JobRecord
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.queue_node import UNBOUNDED
from millpond.scheduling.tenancy.queue_rank import QueueRank

FEW_LINES = 128
"""For more lines than so many it is found first of which there would be no room whoever left."""


@dataclass(frozen=True, slots=True)
class Departures:
    """Whose departure could make room in a walk.

    Attributes:
        lowest_class: that of all work that holds something; a higher class may end it.
        bounds: on what the ordering displaces; None: nothing.
    """

    lowest_class: float
    bounds: DisplacementBounds | None


class Prospects:
    """The prospects of lines on the trial ledger, as it was when they were first asked for after ``look``.

    Attributes:
        admitted: (lines,) whether its queue and its user may let the first of the line start.
    """

    admitted: BoolArray

    def __init__(
        self, state: State, placer: Placer, claims: Claims, standing: QueueRank, asking: WaitingRequests
    ) -> None:
        self._state = state
        self._placer = placer
        self._claims = claims
        self._standing = standing
        self._asking = asking
        self._table = state.waiting.table
        self._departures: Departures | None = None
        self._is_short = False
        self._guaranteed = np.zeros(len(self._table), dtype=np.bool_)
        self._within_queues = np.ones(len(self._table), dtype=np.bool_)
        """(lines,) whether the limits of queues let the first of the line start, as they are in ``_rooms``."""
        self._rooms = np.full((len(self._table.queues.items), 2), np.inf)
        """(queues, 2) what the limits of each queue leave, compute and CPU in milli."""
        self._displace: BoolArray = np.zeros(len(self._table), dtype=np.bool_)
        """(lines,) whether running work could leave by the ordering for the first of the line, where that is known."""
        self._is_known: BoolArray = np.zeros(len(self._table), dtype=np.bool_)
        """(lines,) whether ``_displace`` is known."""
        self._known_as_of: tuple[object, ...] | None = None
        """The value of ``_as_of`` for which these two hold; None: nothing is known."""
        self._fits: BoolArray | None = None

    def look(self, departures: Departures | None, *, is_short: bool = False) -> None:
        """Look around anew.

        Args:
            departures: who may leave; None: nobody may be asked any more.
            is_short: no line goes on because a reservation keeps its first off, see ``Heads.look_no_further``.
        """
        self._departures, self._is_short = departures, is_short
        self._fits = None
        self.look_for_departures()
        self.admitted = self._within_limits() | self.has_reserved
        if departures is not None:
            self._guaranteed = self._standing.covered_now()
            self.admitted |= self._guaranteed

    def make_room(self, rows: Int64Array, *, at_first_glance: bool = False) -> BoolArray:
        """(rows,) whether work may be asked to leave for the first of each of these lines.

        Args:
            at_first_glance: as far as that is known at once.
        """
        departures, makes_room = self._departures, np.zeros(len(rows), dtype=np.bool_)
        if departures is not None:
            makes_room |= self._guaranteed[rows]
            makes_room |= self._table.figure(PRIORITY)[rows] > departures.lowest_class
            if departures.bounds is not None:
                by_ordering = rows[~makes_room]
                self._glance(departures.bounds)
                if not at_first_glance:
                    self._find_displacing(departures.bounds, by_ordering)
                makes_room[~makes_room] = self._displace[by_ordering]
        return makes_room

    @property
    def fits(self) -> BoolArray:
        """(lines,) whether there may be room for the first of each now."""
        if self._fits is None:
            self._fits = self._fit(None, of=self.admitted)
        return self._fits

    def look_for_room(self, of: BoolArray) -> None:
        """See which of these lines, (lines,), still have room now that work was placed; others do not matter."""
        self._fits = self._fit(None, of=of & self.fits)

    def was_to_displace(self, row: int) -> bool:
        """Whether it was found that running work could leave by the ordering for the first of a line."""
        return self._known_as_of is not None and bool(self._is_known[row] and self._displace[row])

    def look_for_departures(self) -> None:
        """See anew for whom work may be asked to leave, now that room is taken which had only to be filled up."""
        if self._known_as_of != self._as_of:
            self._known_as_of = None

    def _within_limits(self) -> BoolArray:
        """(lines,) where no limit keeps out what the first of the line holds at least."""
        state, table = self._state, self._table
        if not state.has_bounds:
            return np.ones(len(table), dtype=np.bool_)
        asked_milli, asked_cpu_milli = table.figure(ASKED_MILLI), table.figure(ASKED_CPU_MILLI)
        of_queues = table.number(QUEUE)
        rooms = [UNBOUNDED if name is None else state.queues.room(name) for name in table.queues.items]
        within, now = self._within_queues, np.array(rooms).reshape(-1, 2)
        changed = np.flatnonzero((now != self._rooms).any(axis=1)[of_queues])
        if len(changed):
            milli, cpu = now.T.take(of_queues[changed], axis=1)
            within = self._within_queues = within.copy()
            within[changed] = (asked_milli[changed] <= milli) & (asked_cpu_milli[changed] <= cpu)
            self._rooms = now
        if not state.limits.in_force:
            return within
        accounts = table.accounts.items
        of_users = [UNBOUNDED if each is None else state.limits.room(each[1], each[0]) for each in accounts]
        own_milli, own_cpu = np.array(of_users).reshape(-1, 2).T.take(table.number(ACCOUNT), axis=1)
        within_both: BoolArray = within & (asked_milli <= own_milli) & (asked_cpu_milli <= own_cpu)
        return within_both

    @cached_property
    def rows_of_strict(self) -> dict[Group, list[int]]:
        """The lines of each group with an ordering of its own that lets nobody pass its first job."""
        found: dict[Group, list[int]] = {}
        for row in np.flatnonzero(self._table.figure(GROUPED)).tolist():
            group = self._table.firsts[row].group
            if group is not None and self._state.orderings.of(group).strict:
                found.setdefault(group, []).append(row)
        return found

    @cached_property
    def must_be_seen(self) -> BoolArray:
        """(lines,) whose turns matter whatever room there is: some is reserved for them, or nobody may pass them."""
        seen = self.has_reserved.copy()
        for rows in self.rows_of_strict.values():
            seen[rows] = True
        return seen

    @cached_property
    def has_reserved(self) -> BoolArray:
        """(lines,) whose first may start on cards that are reserved for its queue, whatever else there is room for."""
        served = self._state.reserved.queues_served(self._state.now)
        numbers = [number for number, queue in enumerate(self._table.queues.items) if queue in served]
        return self._table.are_of(QUEUE, numbers)

    @property
    def _as_of(self) -> tuple[object, ...] | None:
        """Differs whenever others than before may displace work; None where none does."""
        if self._departures is None or self._departures.bounds is None:
            return None
        return self._is_short, self._is_short and self._claims.binding, self._departures.bounds.as_of

    def _glance(self, bounds: DisplacementBounds) -> None:
        """Find out for which classes nobody could leave by the ordering, unless that is known."""
        if self._known_as_of is None:
            self._known_as_of = self._as_of
            of_classes = np.array([bounds.of_class(each) if each in self._present else -np.inf for each in Priority])
            self._displace = self._table.figure(DISPLACES_ABOVE) < of_classes[self._class_numbers]
            self._is_known = ~self._displace

    def _find_displacing(self, bounds: DisplacementBounds, rows: Int64Array) -> None:
        """Find out for the first of which of these lines running work could leave by the ordering, unless known."""
        if len(unknown := rows[~self._is_known[rows]]):
            self._is_known[unknown], self._displace[unknown] = True, False
            self._displace[self._displacing(bounds, unknown)] = True

    def _displacing(self, bounds: DisplacementBounds, rows: Int64Array) -> Int64Array:
        """Those of these lines for whose first running work could leave by the ordering: few pass each bound."""
        above, is_short = self._table.figure(DISPLACES_ABOVE), self._is_short
        if len(rows) > FEW_LINES:
            rows = rows[self._have_room(bounds, rows, [EVERYWHERE], np.zeros(len(rows), dtype=np.int64))]
        firsts, of_rows = self._alike(rows, self._kinds[rows])
        if not firsts:
            return rows
        below = above[rows] < bounds.of_queues(firsts)[of_rows]
        rows, of_rows = rows[below], of_rows[below]
        if not len(rows):
            return rows
        kept_off = self.is_kept_off(rows) if is_short else np.zeros(len(rows), dtype=np.bool_)
        reaches: list[Reach] = []
        for is_kept_off in (False, True)[: 1 + is_short]:
            kept = [self._claims.kept_in(first.job.pool, is_kept_off=is_kept_off) for first in firsts]
            reaches += bounds.reaches(firsts, kept)
        return rows[self._have_room(bounds, rows, reaches, of_rows + kept_off * len(firsts))]

    def _have_room(
        self, bounds: DisplacementBounds, rows: Int64Array, reaches: Sequence[Reach], of_rows: Int64Array
    ) -> BoolArray:
        """(rows,) for whose first there would be room if all left that may.

        Of a job of several tasks that is not known: those without room may find it where others leave it.

        Args:
            reaches: who may leave, of which each of ``rows`` has one: ``of_rows``.
        """
        asking, of_asking = np.unique(of_rows, return_inverse=True)
        reaches = [reaches[number] for number in asking.tolist()]
        different = {reach.key: reach for reach in reaches}
        numbers = {key: number for number, key in enumerate(different)}
        alike = np.array([numbers[reach.key] for reach in reaches], dtype=np.int64)[of_asking]
        may_move = self._table.figure(KEY)[rows] >= self._moved_from(bounds)[self._requests[rows]]
        kinds = (self._requests[rows] * 2 + may_move) * len(different) + alike
        above, is_single = self._table.figure(DISPLACES_ABOVE)[rows], self._table.figure(TASKS)[rows] == 1
        least = np.full(int(kinds.max(initial=-1)) + 1, np.inf)
        np.minimum.at(least, kinds[is_single], above[is_single])
        asked = np.flatnonzero(least < np.inf)
        requests, of_reaches = np.divmod(asked, len(different))
        requests, moves = np.divmod(requests, 2)
        requests, classes = np.divmod(requests, len(Priority))
        shapes, moving = self._asking.single
        least[asked] = bounds.of_requests(
            Asked(
                shapes[requests],
                classes + Priority.BACKGROUND,
                moving[requests] * moves,
                least[asked],
                of_reaches,
                list(different.values()),
            )
        )
        have_room: BoolArray = ~is_single | (above < least[kinds])
        return have_room

    def _moved_from(self, bounds: DisplacementBounds) -> FloatArray:
        """(``_requests``,) from which key on others may be moved aside for who asks for each; or infinite."""
        _, moving = self._asking.single
        found = np.full((len(moving), len(Priority)), np.inf)
        for cards in set(moving.tolist()) - {0.0}:
            for priority in self._present:
                found[moving == cards, priority - Priority.BACKGROUND] = bounds.moved_from(priority, cards)
        return found.ravel()

    @cached_property
    def _kinds(self) -> Int64Array:
        """(lines,) of which queue, pool and class of priority it is."""
        table = self._table
        kinds: Int64Array = table.number(QUEUE) * len(table.pools.items) + table.number(POOL)
        return kinds * len(Priority) + self._class_numbers

    @cached_property
    def _requests(self) -> Int64Array:
        """(lines,) what is asked for, and of which class of priority it is."""
        requests: Int64Array = self._table.number(REQUEST) * len(Priority) + self._class_numbers
        return requests

    @cached_property
    def is_background(self) -> BoolArray:
        """(lines,) whether what stands in it is background work, which no reservation keeps off."""
        background: BoolArray = self._class_numbers == 0
        return background

    @cached_property
    def _class_numbers(self) -> Int64Array:
        """(lines,) the class of priority, counted from the lowest, which is background, as 0."""
        return self._table.figure(PRIORITY).astype(np.int64) - Priority.BACKGROUND

    @cached_property
    def _present(self) -> frozenset[int]:
        """The classes of priority of all lines."""
        return frozenset((np.flatnonzero(np.bincount(self._class_numbers)) + Priority.BACKGROUND).tolist())

    def _alike(self, rows: Int64Array, kinds: Int64Array) -> tuple[list[JobRecord], Int64Array]:
        """Lines grouped by ``kinds``, (rows,): the first job of one line of each group; and (rows,) their groups."""
        if not len(rows):
            return [], rows
        first_of = np.full(int(kinds.max()) + 1, -1)
        first_of[kinds[::-1]] = np.arange(len(kinds))[::-1]
        found = np.flatnonzero(first_of >= 0)
        numbers = np.empty(len(first_of), dtype=np.int64)
        numbers[found] = np.arange(len(found))
        return [self._table.firsts[row] for row in rows[first_of[found]].tolist()], numbers[kinds]

    def kept_waiting(self) -> tuple[BoolArray, BoolArray, JobRecord | None]:
        """(lines,) where room for the first is kept for shorter work, and where all that there is, is reserved.

        And the first of those for whom it will be kept for shorter work no longer, if there are any.
        """
        held, released_first = self._state.held_lines()
        if self._state.queues.has_guarantees:
            held &= ~self._standing.covered_now()
        kept_off, reserved = self.is_kept_off(), np.zeros(len(self._table), dtype=np.bool_)
        for pool in self._claims.reservations if kept_off.any() else ():
            number = self._table.pools.number_of(pool)
            if number is not None:
                here = kept_off & (self._table.number(POOL) == number)
                reserved |= here & ~self._fit(self._claims.mask_reserved_in(pool), of=here & self.fits)
        return held, reserved, released_first

    def is_kept_off(self, rows: Int64Array | slice = slice(None)) -> BoolArray:
        """(rows,) of all lines, or of some, whose first a reservation alone keeps off its nodes."""
        table, claims = self._table, self._claims
        until = [np.inf if pool is None else claims.binds_until(pool) for pool in table.pools.items]
        bound = np.array(until)[table.number(POOL)[rows]]
        kept_off: BoolArray = bound < np.inf
        if kept_off.any():
            kept_off &= (self._cautious_ends[rows] > bound) & ~self.is_background[rows]
        return kept_off

    @cached_property
    def _cautious_ends(self) -> FloatArray:
        """(lines,) when the first, started now, will almost surely have ended."""
        ends: FloatArray = self._state.now + self._state.ordering.time_left.cautious_of(self._table)
        return ends

    def _fit(self, mask: NodeMask | None, of: BoolArray) -> BoolArray:
        """(lines,) whether there may be room for the first on the nodes of a mask; not for lines other than ``of``."""
        numbers, (least_milli, shapes, of_requests, of_shapes) = self._table.number(REQUEST), self._asking.tasks
        fits = np.bincount(numbers[of], minlength=len(least_milli)) > 0
        fits &= least_milli <= self._state.cluster.free_gpu_milli
        asked = np.unique(of_shapes[fits[of_requests]])
        have_room = np.zeros(len(shapes), dtype=np.bool_)
        if mask is None and not self._placer.selector.is_random:
            have_room[asked] = self._asking.anywhere.of(asked)
        else:
            have_room[asked] = self._placer.may_fit([shapes[number] for number in asked.tolist()], mask)
        fits[of_requests[~have_room[of_shapes]]] = False
        of_lines: BoolArray = fits[numbers]
        return of_lines
