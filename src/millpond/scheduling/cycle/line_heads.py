"""The waiting lines in order of rank, one job at a time.

Where there are many lines, those that have no prospects are left out, and only as much is sorted as the walk comes to.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import repeat

import numpy as np

from millpond.scheduling.cycle.prospects import Departures, Prospects
from millpond.scheduling.feasibility.request_classes import RequestClass
from millpond.scheduling.ordering.line_table import POOL, QUEUE, REQUEST
from millpond.scheduling.ordering.waiting_lines import WaitingLines
from millpond.scheduling.placement.arrays import BoolArray, FloatArray, Int64Array
from millpond.scheduling.records import Group, JobRecord
from millpond.scheduling.tenancy.queue_rank import QueueRank, Rank

CHUNK = 128
"""So many lines are sorted at a time."""

Place = tuple[Rank, float]
"""Rank, and arrival among equals."""

Entry = tuple[Rank, float, JobRecord, int, int, int]
"""Rank, arrival, job, its position in its line, the row of the line if it is the first of one of a table, and the
version of ranks by which it stands where it does."""


class Heads:
    """The first of every line, in order; the caller says whether a line goes on or drops out of this walk.

    The lines must not change meanwhile; ranks may rise. What else the caller tells says which of them need not be
    looked at.
    """

    def __init__(self, lines: WaitingLines, standing: QueueRank) -> None:
        self._lines = lines.lines
        self._standing = standing
        self._at: Place = ((), 0.0)
        self._position = 0
        self._heap = self._first()

    def _first(self) -> list[Entry]:
        heap: list[Entry] = [self._entry(line[0][2], 0) for line in self._lines.values()]
        heapq.heapify(heap)
        return heap

    def _entry(self, record: JobRecord, position: int, row: int = -1) -> Entry:
        standing = self._standing
        if len(self._lines) == 1:  # there is nothing that it could be before or behind
            return (), float(record.sequence), record, position, row, 0
        rank, arrival = standing.place_of(record)
        return rank, float(arrival), record, position, row, standing.version

    def pop(self) -> JobRecord | None:
        """The next job; its line has left the walk until ``go_on`` brings it back."""
        heap, standing = self._heap, self._standing
        while len(heap) > 1 and heap[0][5] != standing.version and self._has_risen():
            pass
        if not heap:
            return None
        rank, sequence, record, self._position, _, _ = heapq.heappop(heap)
        self._at = (rank, sequence)
        return record

    def _has_risen(self) -> bool:
        """Whether the rank of the next job has risen since it took its place; if so, it takes that anew."""
        rank, _, record, position, row, _ = self._heap[0]
        entry = self._entry(record, position, row)
        heapq.heapreplace(self._heap, entry)
        return entry[0] != rank

    def go_on(self, record: JobRecord) -> None:
        """The line of the job popped last takes part again, with the one behind it."""
        line, position = self._lines[record.line], self._position + 1
        if position < len(line):
            heapq.heappush(self._heap, self._entry(line[position][2], position))

    def pass_over(self, pool: str, *, wholly: bool) -> None:
        """The first job of a pool has found no room: its others that cannot start, or all, matter no more."""

    def look_no_further(self) -> JobRecord | None:
        """No line goes on any more because its first is kept waiting: those of which that is known matter no more.

        Returns the first of those that the ordering holds back that it will hold back no longer.
        """
        return None

    def close(self, group: Group) -> None:
        """The first of a group that lets nobody pass has found no room: no other matters but for reserved cards."""

    def placed(self) -> None:
        """The job popped last was placed: there is less room than before."""

    def found_no_room(self, record: JobRecord, *, is_kept_off: bool) -> None:
        """Nor is there room for others that ask for the same, if they are kept off as much."""

    def reconsider(self) -> None:
        """Work has been asked to leave, or others than before may be: ranks may have fallen, or prospects changed."""
        if self._standing.may_fall:
            self._heap = [self._entry(record, position, row) for _, _, record, position, row, _ in self._heap]
            heapq.heapify(self._heap)


class TableHeads(Heads):
    """Very many lines, by their table.

    Args:
        departures: who may leave, at the time when it is called.
    """

    def __init__(
        self,
        lines: WaitingLines,
        standing: QueueRank,
        prospects: Prospects,
        departures: Callable[[], Departures | None],
    ) -> None:
        self._table = lines.table
        self._places: list[FloatArray] = list(map(np.array, standing.places(lines.table)))
        self._ranked_at = standing.version
        self._prospects, self._departures = prospects, departures
        prospects.look(departures())
        self._left_out: BoolArray = ~prospects.admitted
        self._only_by_departures = np.zeros(len(lines.table), dtype=np.bool_)
        """(lines,) that are left out too if nobody may leave for their first: that is found when one is wanted."""
        self._is_outdated = False
        """Whether there may be no room for more lines than these say."""
        self._looks_at_all = True
        """Whether it is found for all lines; after a plan first for those that come next: it may be found at once."""
        self._rest: Int64Array = np.flatnonzero(prospects.admitted)
        self._lined_up_to: Place = ((), 0.0)
        """The heap has all lines that stood before this, or there, when the walk began."""
        self._row = -1
        """Of the line whose first was popped last; -1: it was not the first."""
        self._had_turn: BoolArray = np.zeros(len(lines.table), dtype=np.bool_)
        """Their turn has come, whether they were looked at or left out."""
        self._passed_over: set[int] = set()
        self._without_room: set[tuple[RequestClass, bool]] = set()
        self._is_short = self._has_less_room = False
        super().__init__(lines, standing)

    def _first(self) -> list[Entry]:
        return []

    def pop(self) -> JobRecord | None:
        if self._ranked_at != self._standing.version:
            self._rank_again(self._risen())
        if self._is_outdated:
            self._is_outdated = False
            self._need_departures(~self._prospects.fits & self._table.are_of(POOL, self._passed_over))
            self._drop_left_out()
        while True:
            if len(self._rest) and (not self._heap or self._heap[0][:2] > self._lined_up_to):
                self._sort_more()
            elif not self._heap:
                return None
            elif (row := self._heap[0][4]) >= 0 and self._left_out[row]:
                heapq.heappop(self._heap)
            elif row >= 0 and self._only_by_departures[row]:
                self._leave_out_hopeless()
            elif self._heap[0][5] == self._standing.version or not self._has_risen():
                self._had_turn[row] |= row >= 0
                self._row = row
                return super().pop()

    def pass_over(self, pool: str, *, wholly: bool) -> None:
        number = self._table.pools.number_of(pool)
        if number is not None:
            self._passed_over.add(number)
            if wholly:
                self._leave_out((self._table.number(POOL) == number) & ~self._prospects.is_background)
            else:
                self._is_outdated = True

    def look_no_further(self) -> JobRecord | None:
        self._is_short = True
        self._prospects.look(self._departures(), is_short=True)
        self._is_outdated = True
        return self._keep_waiting()

    def close(self, group: Group) -> None:
        has_reserved = self._prospects.has_reserved
        self._left_out[[row for row in self._prospects.rows_of_strict.get(group, ()) if not has_reserved[row]]] = True

    def placed(self) -> None:
        self._has_less_room = True

    def found_no_room(self, record: JobRecord, *, is_kept_off: bool) -> None:
        table = self._table
        pool, request = table.pools.number_of(record.job.pool), table.requests.number_of(record.demand)
        if pool not in self._passed_over:
            return
        if self._has_less_room:  # others than this one may have lost theirs, too
            self._has_less_room, self._is_outdated = False, True
            self._prospects.look_for_room(~(self._left_out | self._had_turn))
            if self._row >= 0 and self._prospects.was_to_displace(self._row):
                self._prospects.look_for_departures()
        if is_kept_off and not self._is_short:
            return
        if (record.demand, is_kept_off) in self._without_room:
            return
        self._without_room.add((record.demand, is_kept_off))
        alike = table.number(REQUEST) == request
        self._need_departures(alike & self._prospects.is_kept_off() if is_kept_off else alike)

    def reconsider(self) -> None:
        self._prospects.look(self._departures(), is_short=self._is_short)
        self._has_less_room = False
        self._without_room.clear()
        left_out = ~self._prospects.admitted
        if self._standing.may_fall or self._passed_over or self._is_short or (self._left_out & ~left_out).any():
            self._line_up_again()
        self._left_out, self._is_outdated = left_out, bool(self._passed_over)
        self._only_by_departures[:], self._looks_at_all = False, False
        if self._is_short:
            self._keep_waiting()

    def _keep_waiting(self) -> JobRecord | None:
        """Those drop out for whom no room is left that is not kept for others; see ``look_no_further``."""
        held, reserved, released_first = self._prospects.kept_waiting()
        self._leave_out(held)
        self._need_departures(reserved)
        return released_first

    def _line_up_again(self) -> None:
        """All that may have been left out and have their turns to come are looked at again.

        Since their ranks were found last these may have risen, and guarantees may cover others than then.
        """
        self._note_turns(np.flatnonzero(~self._had_turn))
        self._rank_again(self._risen())
        if self._standing.may_fall:
            np.copyto(self._places[0], ~self._standing.covered_now(), where=~self._had_turn)
        self._heap = [self._entry(record, position) for _, _, record, position, row, _ in self._heap if row < 0]
        heapq.heapify(self._heap)
        self._lined_up_to = ((), 0.0)
        self._rest = np.flatnonzero(~self._had_turn)

    def _risen(self) -> Int64Array:
        """(rows,) those whose ranks may have risen since they were found."""
        risen = self._standing.risen_since(self._ranked_at)
        numbers = [number for number, queue in enumerate(self._table.queues.items) if queue in risen]
        return np.flatnonzero(self._table.are_of(QUEUE, numbers) & ~self._had_turn)

    def _note_turns(self, rows: Int64Array) -> None:
        """Whose turn came by the ranks that were found last has had it, though it was left out."""
        self._had_turn[rows] |= ~self._behind(rows)

    def _rank_again(self, rows: Int64Array) -> None:
        """Find the ranks of lines anew."""
        self._ranked_at = self._standing.version
        if not len(rows):
            return
        self._note_turns(rows)
        for column, found in zip(self._places, self._standing.places(self._table.only(rows)), strict=True):
            column[rows] = found

    def _need_departures(self, lines: BoolArray) -> None:
        """(lines,): they drop out, if their first has not had its turn, unless others may leave for it."""
        rows = np.flatnonzero(lines & ~(self._prospects.must_be_seen | self._left_out))
        may_make_room = self._prospects.make_room(rows, at_first_glance=True)
        self._left_out[rows[~may_make_room]] = True
        self._only_by_departures[rows[may_make_room]] = True

    def _leave_out_hopeless(self) -> None:
        """See for which lines others may leave: of those that are lined up, or of all."""
        rows = np.array([entry[4] for entry in self._heap if entry[4] >= 0], dtype=np.int64)
        if self._looks_at_all:
            rows = np.concatenate([rows, self._rest])
        self._looks_at_all = True
        rows = rows[self._only_by_departures[rows] & ~self._left_out[rows]]
        self._only_by_departures[rows] = False
        self._left_out[rows[~self._prospects.make_room(rows)]] = True
        self._drop_left_out()

    def _drop_left_out(self) -> None:
        """Those lined up that have dropped out go at once: one by one takes longer."""
        self._heap = [entry for entry in self._heap if entry[4] < 0 or not self._left_out[entry[4]]]
        heapq.heapify(self._heap)

    def _behind(self, rows: Int64Array) -> BoolArray:
        """(rows,) which of them stand behind the job popped last by the ranks that were found last."""
        rank, sequence = self._at
        values = (*rank, sequence)
        behind = np.zeros(len(rows), dtype=np.bool_)
        for column, value in zip(self._places[::-1], values[::-1], strict=True):
            behind = (column[rows] > value) | ((column[rows] == value) & behind)
        return behind

    def _leave_out(self, lines: BoolArray) -> None:
        """(lines,): they drop out, if their first has not had its turn."""
        self._left_out |= lines & ~self._prospects.must_be_seen

    def _sort_more(self) -> None:
        """Line up those of the rest that come next."""
        if self._looks_at_all and self._only_by_departures[self._rest].any():
            self._leave_out_hopeless()
        rest = chosen = self._rest[~self._left_out[self._rest]]
        *columns, arrivals = self._places
        for column in columns:
            if len(chosen) <= CHUNK:
                break
            values = column[chosen]
            lowest = values == values.min()
            if np.count_nonzero(lowest) > CHUNK:
                chosen = chosen[lowest]
            else:
                chosen = chosen[values < np.partition(values, CHUNK)[CHUNK]]
        if not len(chosen):
            self._rest = chosen
            return
        ranks = list(zip(*(column[chosen].tolist() for column in columns), strict=True))
        sequences = arrivals[chosen].tolist()
        rows = chosen.tolist()
        firsts = [self._table.firsts[row] for row in rows]
        self._heap.extend(zip(ranks, sequences, firsts, repeat(0), rows, repeat(self._ranked_at)))
        heapq.heapify(self._heap)
        self._lined_up_to = max(zip(ranks, sequences, strict=True))
        taken = np.zeros(len(self._table), dtype=np.bool_)
        taken[chosen] = True
        self._rest = rest[~taken[rest]]
