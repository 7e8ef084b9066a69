"""When each job was last used: requests through the proxy, commands run beside it, ports forwarded.

By a clock that cannot be set: a wall clock that is set forward would make every session idle at once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from millpond.node.host.clocks import MonotonicClock
from millpond.specs.api.jobs.jobs import JobInfo


class Activity:
    """Remembers since this server's start, and only that: what lies before counts as never."""

    def __init__(self, clock: MonotonicClock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._used_at: dict[str, float] = {}
        self._page_used_at: dict[str, float] = {}
        self._uses: dict[str, int] = {}

    def now(self) -> float:
        """The time by the clock of ``last_used``."""
        return self._clock()

    def used(self, job: str, *, of_page: bool = False) -> None:
        """Note a use, now.

        Args:
            of_page: an open page says so.
        """
        (self._page_used_at if of_page else self._used_at)[job] = self._clock()

    @contextmanager
    def use(self, job: str, counts: bool = True) -> Iterator[None]:
        """The job is in use while this lasts, where it ``counts``."""
        if not counts:
            yield
            return
        with self._lock:
            self._uses[job] = self._uses.get(job, 0) + 1
        try:
            self.used(job)
            yield
        finally:
            if job in self._used_at:  # it has not ended meanwhile
                self.used(job)
            with self._lock:
                self._uses[job] -= 1
                if not self._uses[job]:
                    del self._uses[job]

    def last_used(self, job: str, *, of_pages: bool = True) -> float | None:
        """When it was last used; now, while it is in use; None when never.

        Args:
            of_pages: what open pages say counts too.
        """
        if job in self._uses:
            return self._clock()
        known = (self._used_at.get(job), self._page_used_at.get(job) if of_pages else None)
        return max((at for at in known if at is not None), default=None)

    def unused_s(self, job: str) -> float | None:
        """For how many seconds it has not been used; None when it never was."""
        at = self.last_used(job)
        return None if at is None else self._clock() - at

    def ended(self, jobs: Iterable[JobInfo]) -> None:
        """Jobs have ended: when they were used is not asked any more."""
        for job in jobs:
            self._used_at.pop(job.id, None)
            self._page_used_at.pop(job.id, None)
