"""How much work waits: by pool and class of priority."""

from __future__ import annotations

from millpond.scheduling.records import JobRecord


class Backlog:
    """The work that waits, in milli-card-seconds; whole numbers, so that sums do not depend on the order of adding."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, int], tuple[int, int]] = {}
        """The work, and of how many jobs."""

    def add(self, record: JobRecord, sign: int) -> None:
        """A job waits (``sign`` 1), or waits no longer (-1)."""
        key = (record.job.pool, int(record.job.priority))
        work, jobs = self._waiting.get(key, (0, 0))
        self._waiting[key] = (work + sign * record.work, jobs + sign)

    def forget(self, record: JobRecord) -> None:
        """The work of a waiting job counts no longer."""
        self.add(record, -1)
        record.work = 0
        self.add(record, 1)

    def copy_from(self, other: Backlog) -> None:
        """Let the same work wait."""
        self._waiting = dict(other._waiting)

    def beside(self, record: JobRecord) -> tuple[int, int]:
        """What else waits in the pool of a waiting job, in its class and above: the work, and how many jobs."""
        pool, priority = record.job.pool, record.job.priority
        found = [each for (of, level), each in self._waiting.items() if of == pool and level >= priority]
        return sum(work for work, _ in found) - record.work, sum(jobs for _, jobs in found) - 1
