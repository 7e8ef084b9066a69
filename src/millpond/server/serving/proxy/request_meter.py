"""Measurements of each service by the proxy: requests, their durations, open requests, and wake-ups.

By a clock that cannot be set: by one that is set back, a few requests would look like thousands a second.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from millpond.node.host.clocks import MonotonicClock


@dataclass(frozen=True, slots=True)
class Load:
    """What was measured of a service since the last look.

    Attributes:
        requests_per_s: finished in all.
        latency_s: mean from a request's arrival to the end of its answer; 0 when none was finished.
        open_requests: now, in all.
        device_use_milli: mean part of the time in which its devices were computing; None when nothing reports it.
    """

    requests_per_s: float
    latency_s: float
    open_requests: int
    device_use_milli: float | None = None


@dataclass(frozen=True, slots=True)
class Total:
    """What was counted of a job since this server began.

    Attributes:
        cold_starts: how often a request woke it from having no replicas.
        longest_cold_start_s: from such a request to the first ready replica.
    """

    requests: int = 0
    open_requests: int = 0
    cold_starts: int = 0
    mean_cold_start_s: float = 0.0
    longest_cold_start_s: float = 0.0


@dataclass(slots=True)
class _Figures:
    since: float
    finished: int = 0
    took_s: float = 0.0
    open: int = 0
    in_all: int = 0
    used_at: float | None = None
    cold_starts: int = 0
    cold_s: float = 0.0
    coldest_s: float = 0.0


class ProxyMeter:
    """Counts by job; asked for by one thread, fed by another.

    Args:
        clock: also that of the instants that it is asked with.
    """

    def __init__(self, clock: MonotonicClock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._figures: dict[str, _Figures] = {}

    @contextmanager
    def request(self, job: str) -> Iterator[None]:
        """A request, while it lasts; one that waits for a replica counts already."""
        began = self._clock()
        with self._lock:
            figures = self._figures.setdefault(job, _Figures(began))
            figures.open += 1
        try:
            yield
        finally:
            now = self._clock()
            with self._lock:
                figures.open -= 1
                figures.finished += 1
                figures.in_all += 1
                figures.took_s += max(0.0, now - began)
                figures.used_at = now

    def woken(self, job: str, after_s: float) -> None:
        """A request woke a job that had no replicas, and one was ready after so long."""
        with self._lock:
            figures = self._figures.setdefault(job, _Figures(self._clock()))
            figures.cold_starts += 1
            figures.cold_s += after_s
            figures.coldest_s = max(figures.coldest_s, after_s)

    def load(self, job: str, now: float) -> Load:
        """What was measured of a job since this was last asked for it."""
        with self._lock:
            figures = self._figures.setdefault(job, _Figures(now))
            passed = max(now - figures.since, 1e-3)
            mean_s = figures.took_s / figures.finished if figures.finished else 0.0
            load = Load(figures.finished / passed, mean_s, figures.open)
            figures.since, figures.finished, figures.took_s = now, 0, 0.0
        return load

    def last_used(self, job: str, now: float) -> float | None:
        """When a request of a job was open last; None when this server has seen none."""
        figures = self._figures.get(job)
        return None if figures is None else now if figures.open else figures.used_at

    def total(self, job: str) -> Total:
        """What was counted of a job since this server began."""
        with self._lock:
            figures = self._figures.get(job) or _Figures(0.0)
            mean_s = figures.cold_s / figures.cold_starts if figures.cold_starts else 0.0
            return Total(figures.in_all, figures.open, figures.cold_starts, mean_s, figures.coldest_s)

    def forget(self, job: str) -> None:
        """It has ended, and nothing is open."""
        with self._lock:
            figures = self._figures.get(job)
            if figures is not None and not figures.open:
                del self._figures[job]
