"""The waiting lines: waiting jobs in order, without a look at each of them in every cycle.

Jobs that ask for the same thing from the same queue stand in one line, sorted by the ordering's key. If the first of a
line does not fit, none of the line does, so a cycle looks at one job per line, not at every job.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator

from millpond.scheduling.records import JobRecord

LineKey = tuple[object, ...]
Rank = tuple[float, ...]
Key = tuple[float, ...]
Line = list[tuple[Key, int, JobRecord]]
"""Sorted by key, then arrival. Both stand beside the record so that tuples are compared, without a call for each."""


class WaitingLines:
    """All waiting jobs, by line."""

    __slots__ = ("count", "lines")

    def __init__(self) -> None:
        self.lines: dict[LineKey, Line] = {}
        self.count = 0

    def add(self, record: JobRecord) -> None:
        """Put a job with its key set into its line."""
        job = record.job
        line = record.line
        if not line:
            line = record.line = (job.queue, job.user, job.priority, record.demand)
        waiting = self.lines.get(line)
        entry = (record.key, record.sequence, record)
        if waiting is None:
            self.lines[line] = [entry]
        else:
            insort(waiting, entry)
        self.count += 1

    def copy_from(self, other: WaitingLines, twin_of: Callable[[JobRecord], JobRecord]) -> None:
        """Let the twins of other jobs wait in the same order."""
        for key, line in other.lines.items():
            twins = [(own, sequence, twin_of(record)) for own, sequence, record in line]
            own_key = (*key[:-1], twins[0][2].demand)
            self.lines[own_key] = twins
            for _, _, twin in twins:
                twin.line = own_key
        self.count = other.count

    def remove(self, record: JobRecord) -> None:
        """Take a job out of its line."""
        waiting = self.lines[record.line]
        del waiting[bisect_left(waiting, (record.key, record.sequence, record))]
        if not waiting:
            del self.lines[record.line]
        self.count -= 1

    def rekey(self, record: JobRecord, key: Key) -> None:
        """Move a job to where its new key belongs in its line."""
        waiting = self.lines[record.line]
        place = bisect_left(waiting, (record.key, record.sequence, record))
        record.key = key
        entry = (key, record.sequence, record)
        goes_before = place + 1 == len(waiting) or entry < waiting[place + 1]
        goes_after = place == 0 or waiting[place - 1] < entry
        if goes_before and goes_after:
            waiting[place] = entry  # it has passed no other
        else:
            del waiting[place]
            insort(waiting, entry)

    def position(self, record: JobRecord) -> int:
        """Its place in its own line, from 0."""
        return bisect_left(self.lines[record.line], (record.key, record.sequence, record))

    def at(self, record: JobRecord, position: int) -> JobRecord | None:
        """Who stands at ``position`` of the line of ``record``; None beyond its end."""
        waiting = self.lines.get(record.line, [])
        return waiting[position][2] if position < len(waiting) else None

    def __iter__(self) -> Iterator[JobRecord]:
        for waiting in self.lines.values():
            for _, _, record in waiting:
                yield record

    def lowest_displacing(self) -> float:
        """The lowest key above which the first of some line displaces running work; infinite when nothing waits."""
        return min((line[0][2].displaces_above for line in self.lines.values()), default=float("inf"))

    def highest_class(self) -> int:
        """The highest class of priority among waiting jobs; -1 when there are none."""
        return max((line[0][2].job.priority for line in self.lines.values()), default=-1)

    def ranked(self, rank: Callable[[JobRecord], Rank]) -> list[JobRecord]:
        """All jobs, first to last: by ``rank`` of the record, then key, then arrival. O(n log n): for explanations."""
        return sorted(self, key=lambda record: (rank(record), record.sequence))

    def heads(self, rank: Callable[[JobRecord], Rank]) -> Heads:
        """A walk over the lines in order, one job at a time."""
        return Heads(self, rank)


class Heads:
    """The first of every line, in order; the caller says whether a line goes on or drops out of this walk.

    The lines must not change while they are walked.
    """

    __slots__ = ("_heap", "_lines", "_position", "_rank")

    def __init__(self, lines: WaitingLines, rank: Callable[[JobRecord], Rank]) -> None:
        self._lines = lines.lines
        self._rank = rank
        self._position = 0
        self._heap = [(rank(line[0][2]), line[0][1], line[0][2], 0) for line in lines.lines.values()]
        heapq.heapify(self._heap)

    def pop(self) -> JobRecord | None:
        """The next job; its line has left the walk until ``go_on`` brings it back."""
        if not self._heap:
            return None
        _, _, record, self._position = heapq.heappop(self._heap)
        return record

    def go_on(self, record: JobRecord) -> None:
        """The line of the job popped last takes part again, with the one behind it."""
        line, position = self._lines[record.line], self._position + 1
        if position < len(line):
            behind = line[position][2]
            heapq.heappush(self._heap, (self._rank(behind), behind.sequence, behind, position))
