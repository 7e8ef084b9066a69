"""The waiting lines: who waits, in order, without looking at everybody in every cycle.

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


def _order(record: JobRecord) -> tuple[tuple[float, ...], int]:
    return record.key, record.sequence


class WaitingLines:
    """All waiting jobs, by line."""

    __slots__ = ("_kinds", "count", "lines")

    def __init__(self) -> None:
        self.lines: dict[LineKey, list[JobRecord]] = {}
        self.count = 0
        self._kinds: dict[object, int] = {}

    def add(self, record: JobRecord) -> None:
        """Put a job with its key set into its line."""
        job = record.job
        line = record.line
        if not line:
            kind = (job.roles, job.together, job.together_required)
            number = self._kinds.setdefault(kind, len(self._kinds))
            line = record.line = (job.queue, job.user, job.pool, int(job.priority), number)
        waiting = self.lines.get(line)
        if waiting is None:
            self.lines[line] = [record]
        else:
            insort(waiting, record, key=_order)
        self.count += 1

    def remove(self, record: JobRecord) -> None:
        """Take a job out of its line."""
        waiting = self.lines[record.line]
        position = bisect_left(waiting, _order(record), key=_order)
        del waiting[position]
        if not waiting:
            del self.lines[record.line]
        self.count -= 1

    def position(self, record: JobRecord) -> int:
        """Its place in its own line, from 0."""
        return bisect_left(self.lines[record.line], _order(record), key=_order)

    def at(self, record: JobRecord, position: int) -> JobRecord | None:
        """Who stands at ``position`` of the line of ``record``; None beyond its end."""
        waiting = self.lines.get(record.line, [])
        return waiting[position] if position < len(waiting) else None

    def __contains__(self, record: JobRecord) -> bool:
        waiting = self.lines.get(record.line)
        if waiting is None:
            return False
        position = bisect_left(waiting, _order(record), key=_order)
        return position < len(waiting) and waiting[position] is record

    def __iter__(self) -> Iterator[JobRecord]:
        for waiting in self.lines.values():
            yield from waiting

    def lowest_displacing(self) -> float:
        """The lowest key above which the first of some line displaces running work; infinite when nobody waits."""
        return min((line[0].displaces_above for line in self.lines.values()), default=float("inf"))

    def ranked(self, rank: Callable[[JobRecord], Rank]) -> list[JobRecord]:
        """Everybody, first to last: by ``rank`` of the record, then key, then arrival. O(n log n): for explanations."""
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
        self._heap = [(rank(first), first.sequence, first, 0) for first in (line[0] for line in lines.lines.values())]
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
            behind = line[position]
            heapq.heappush(self._heap, (self._rank(behind), behind.sequence, behind, position))
