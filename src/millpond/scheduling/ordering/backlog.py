"""How much work waits: by pool and class of priority."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from millpond.model.workloads import Priority
from millpond.scheduling.ordering.base import LEAST_SIZE_MILLI
from millpond.scheduling.records import JobRecord

CLASSES: Final = tuple(Priority)
"""From the lowest on; their numbers follow each other."""
LOWEST: Final = int(CLASSES[0])

SMALL_WORK_S = 1_800.0
"""Work is small beside its pool if it would keep all cards of that busy for no more than this."""

SMALL_LEAD = 0.02
"""An overdue job that is small beside its pool displaces its equals as if its key were this part of what it is."""


def length_s(record: JobRecord) -> float:
    """Seconds that a waiting job needed when it joined its line; 0 once it counts no longer."""
    return record.work / max(record.gpu_milli, LEAST_SIZE_MILLI)


class Backlog:
    """The work that waits, in milli-card-seconds; whole numbers, so that sums do not depend on the order of adding."""

    __slots__ = ("_jobs", "_work")

    def __init__(self) -> None:
        self._work: dict[str, list[int]] = {}
        self._jobs: dict[str, list[int]] = {}
        """By pool, for each class of priority: the work of it and of the classes above, and of how many jobs."""

    def add(self, record: JobRecord, sign: int) -> None:
        """A job waits (``sign`` 1), or waits no longer (-1)."""
        pool = record.job.pool
        work = self._work.get(pool)
        if work is None:
            work = self._work[pool] = [0] * len(CLASSES)
            self._jobs[pool] = [0] * len(CLASSES)
        jobs = self._jobs[pool]
        for index in range(_index(record) + 1):
            work[index] += sign * record.work
            jobs[index] += sign

    def forget(self, record: JobRecord) -> None:
        """The work of a waiting job counts no longer."""
        work = self._work[record.job.pool]
        for index in range(_index(record) + 1):
            work[index] -= record.work
        record.work = 0

    def copy_from(self, other: Backlog) -> None:
        """Let the same work wait."""
        self._work = {pool: list(work) for pool, work in other._work.items()}
        self._jobs = {pool: list(jobs) for pool, jobs in other._jobs.items()}

    def of(self, pool: str) -> Iterator[tuple[int, int, int]]:
        """For each class of priority of a pool: the class, the work, and how many jobs."""
        if pool not in self._work:
            return
        work, jobs = [*self._work[pool], 0], [*self._jobs[pool], 0]
        for index, level in enumerate(CLASSES):
            yield level, work[index] - work[index + 1], jobs[index] - jobs[index + 1]

    def beside(self, record: JobRecord) -> tuple[int, int]:
        """What else waits in the pool of a waiting job, in its class and above: the work, and how many jobs."""
        pool, index = record.job.pool, _index(record)
        return self._work[pool][index] - record.work, self._jobs[pool][index] - 1


def _index(record: JobRecord) -> int:
    """Where the class of a job stands among ``CLASSES``."""
    return int(record.job.priority) - LOWEST
