"""How much work waits: by pool and class of priority."""

from __future__ import annotations

from collections.abc import Iterator

from millpond.model.workloads import Priority
from millpond.scheduling.ordering.base import LEAST_SIZE_MILLI
from millpond.scheduling.records import JobRecord


def length_s(record: JobRecord) -> float:
    """Seconds that a waiting job needed when it joined its line; 0 once it counts no longer."""
    return record.work / max(record.gpu_milli, LEAST_SIZE_MILLI)


class Backlog:
    """The work that waits, in milli-card-seconds; whole numbers, so that sums do not depend on the order of adding."""

    __slots__ = ("_jobs", "_work")

    def __init__(self) -> None:
        self._work: dict[str, dict[Priority, int]] = {}
        self._jobs: dict[str, dict[Priority, int]] = {}
        """By pool, for each class of priority: the work, and of how many jobs."""

    def add(self, record: JobRecord, sign: int) -> None:
        """A job waits (``sign`` 1), or waits no longer (-1)."""
        pool, priority = record.job.pool, record.job.priority
        work = self._work.get(pool)
        if work is None:
            work = self._work[pool] = dict.fromkeys(Priority, 0)
            self._jobs[pool] = dict.fromkeys(Priority, 0)
        work[priority] += sign * record.work
        self._jobs[pool][priority] += sign

    def forget(self, record: JobRecord) -> None:
        """The work of a waiting job counts no longer."""
        self._work[record.job.pool][record.job.priority] -= record.work
        record.work = 0

    def copy_from(self, other: Backlog) -> None:
        """Let the same work wait."""
        self._work = {pool: dict(work) for pool, work in other._work.items()}
        self._jobs = {pool: dict(jobs) for pool, jobs in other._jobs.items()}

    def of(self, pool: str) -> Iterator[tuple[int, int, int]]:
        """For each class of priority of a pool: the class, the work, and how many jobs."""
        jobs = self._jobs.get(pool, {})
        return ((level, work, jobs[level]) for level, work in self._work.get(pool, {}).items())

    def beside(self, record: JobRecord) -> tuple[int, int]:
        """What else waits in the pool of a waiting job, in its class and above: the work, and how many jobs."""
        pool, priority = record.job.pool, record.job.priority
        levels = [level for level in Priority if level >= priority]
        work, jobs = self._work[pool], self._jobs[pool]
        return sum(work[level] for level in levels) - record.work, sum(jobs[level] for level in levels) - 1
