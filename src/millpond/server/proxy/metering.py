"""What the proxy measures of each service, for the autoscaler: requests, how long they took, how many are open."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from millpond.server.inbox import wall_clock
from millpond.server.scaling import Load


@dataclass(slots=True)
class _Figures:
    since: float
    finished: int = 0
    took_s: float = 0.0
    open: int = 0


class Meter:
    """Counts by job; asked for by one thread, fed by another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._figures: dict[str, _Figures] = {}

    @contextmanager
    def request(self, job: str) -> Iterator[None]:
        """A request, while it lasts; one that waits for a replica counts already."""
        began = wall_clock()
        with self._lock:
            figures = self._figures.setdefault(job, _Figures(began))
            figures.open += 1
        try:
            yield
        finally:
            with self._lock:
                figures.open -= 1
                figures.finished += 1
                figures.took_s += max(0.0, wall_clock() - began)

    def load(self, job: str, now: float) -> Load:
        """What was measured of a job since this was last asked for it."""
        with self._lock:
            figures = self._figures.setdefault(job, _Figures(now))
            passed = max(now - figures.since, 1e-3)
            mean_s = figures.took_s / figures.finished if figures.finished else 0.0
            load = Load(figures.finished / passed, mean_s, figures.open)
            figures.since, figures.finished, figures.took_s = now, 0, 0.0
        return load
