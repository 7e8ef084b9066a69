"""The waiting lines: waiting jobs in order, without a look at each of them in every cycle.

Jobs that ask for the same thing from the same queue stand in one line, sorted by the ordering's key. If the first of a
line does not fit, none of the line does, so a cycle looks at one job per line, not at every job; and what it compares
of all lines stands in columns (``line_table``), so that it looks closely only at those that have a chance.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator

import numpy as np

from millpond.scheduling.ordering.backlog import Backlog
from millpond.scheduling.ordering.line_table import DISPLACES_ABOVE, QUEUE, REQUEST, LineKey, LineTable
from millpond.scheduling.ordering.turns import Turns
from millpond.scheduling.records import JobRecord

Rank = tuple[float, ...]
Key = tuple[float, ...]
Line = list[tuple[Key, int, JobRecord]]
"""Sorted by key, then arrival. Both stand beside the record so that tuples are compared, without a call for each."""

FEW = 32
"""So many lines are looked at one by one."""


class WaitingLines:
    """All waiting jobs, by line.

    Attributes:
        backlog: how much work that is.
        count: how many jobs wait.
        lines: by what stands in the line; none is empty.
        turns: when those go among all others that have an ordering of their own.
    """

    __slots__ = ("_changed", "_table", "backlog", "count", "lines", "turns")

    def __init__(self) -> None:
        self.lines: dict[LineKey, Line] = {}
        self.count = 0
        self.backlog = Backlog()
        self.turns = Turns()
        self._table = LineTable()
        self._changed: dict[LineKey, None] = {}
        """Lines whose row is not what it should be; an ordered set."""

    @property
    def are_few(self) -> bool:
        """Whether it is quicker to look at the lines one by one than at the table."""
        return len(self.lines) <= FEW

    @property
    def table(self) -> LineTable:
        """The first of every line, as columns; brought up to date when it is asked for."""
        for key in self._changed:
            if line := self.lines.get(key):
                self._table.put(key, line[0][2])
            else:
                self._table.drop(key)
        self._changed.clear()
        return self._table

    def add(self, record: JobRecord) -> None:
        """Put a job with its key set into its line."""
        job = record.job
        line = record.line
        if not line:
            kind = (job.priority, job.preemptible, job.reservation, record.group)
            line = record.line = (job.queue, job.user, *kind, record.demand)
        waiting = self.lines.get(line)
        entry = (record.key, record.sequence, record)
        if waiting is None:
            self.lines[line] = [entry]
            self._changed[line] = None
        else:
            insort(waiting, entry)
            if waiting[0][2] is record:
                self._changed[line] = None
        self.count += 1
        self.turns.add(record)
        self.backlog.add(record, 1)

    def copy_from(self, other: WaitingLines, jobs: dict[str, JobRecord]) -> None:
        """Let ``jobs`` wait in the same order as those of the same names in other lines."""
        for key, line in other.lines.items():
            twins = [(own, sequence, jobs[record.id]) for own, sequence, record in line]
            own_key = (*key[:-1], twins[0][2].demand)
            self.lines[own_key] = twins
            for _, _, twin in twins:
                twin.line = own_key
        self._changed = dict.fromkeys(self.lines)
        self.count = other.count
        self.turns.copy_from(other.turns)
        self.backlog.copy_from(other.backlog)

    def remove(self, record: JobRecord) -> None:
        """Take a job out of its line."""
        line = record.line
        waiting = self.lines[line]
        place = bisect_left(waiting, (record.key, record.sequence, record))
        del waiting[place]
        if not waiting:
            del self.lines[line]
            if line in self._table:
                self._changed[line] = None
            else:
                self._changed.pop(line, None)
        elif place == 0:
            self._changed[line] = None
        self.count -= 1
        self.turns.remove(record)
        self.backlog.add(record, -1)

    def rekey(self, record: JobRecord, key: Key, turn: float) -> None:
        """Move a job to where its new key belongs in its line, and let it have another turn."""
        waiting = self.lines[record.line]
        place = bisect_left(waiting, (record.key, record.sequence, record))
        self.turns.remove(record)
        record.key, record.turn = key, turn
        self.turns.add(record)
        entry = (key, record.sequence, record)
        goes_before = place + 1 == len(waiting) or entry < waiting[place + 1]
        goes_after = place == 0 or waiting[place - 1] < entry
        if goes_before and goes_after:
            waiting[place] = entry  # it has passed no other
        else:
            del waiting[place]
            insort(waiting, entry)
        if place == 0 or waiting[0][2] is record:
            self._changed[record.line] = None

    def __iter__(self) -> Iterator[JobRecord]:
        for waiting in self.lines.values():
            for _, _, record in waiting:
                yield record

    def firsts_by_queue(self, *, all_alike: bool) -> dict[str, list[JobRecord]]:
        """The first of each line, by the queue that it is charged to.

        Args:
            all_alike: of those of a queue that ask for the same, one will do.
        """
        found: dict[str, list[JobRecord]] = {}
        if self.are_few or not all_alike:
            firsts = [line[0][2] for line in self.lines.values()]
        else:
            table = self.table
            kinds = table.number(QUEUE) * len(table.requests.items) + table.number(REQUEST)
            row_of = np.full(len(table.queues.items) * len(table.requests.items), -1)
            row_of[kinds] = np.arange(len(kinds))
            firsts = [table.firsts[row] for row in row_of[row_of >= 0].tolist()]
        for first in firsts:
            found.setdefault(first.queue, []).append(first)
        return found

    def lowest_displacing(self) -> float:
        """The lowest key above which the first of some line displaces running work; infinite when nothing waits."""
        if self.are_few:
            return min((line[0][2].displaces_above for line in self.lines.values()), default=float("inf"))
        return float(self.table.figure(DISPLACES_ABOVE).min())

    def highest_class(self) -> int:
        """The highest class of priority among waiting jobs; -1 when there are none."""
        return max((line[0][2].job.priority for line in self.lines.values()), default=-1)

    def ranked(self, place_of: Callable[[JobRecord], tuple[Rank, int]]) -> list[JobRecord]:
        """All jobs, first to last, by rank and arrival as ``place_of`` says. O(n log n): for explanations."""
        return sorted(self, key=place_of)
