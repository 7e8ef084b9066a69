"""Counters since the last start: requests, cycles of the scheduler, starts and ends of jobs.

Labels come from fixed sets and from what admins name (queues, and of these a bounded number), so that no client can
make the server remember more.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import cache
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millpond.server.http.origins import job_addressed
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.job.serving import PROXY_PREFIX

MOST_QUEUES: Final = 200
"""So many queues have figures of their own: trees with a queue for each user grow large."""
ALL_OTHERS: Final = ""
"""What stands for the queue in figures of all others together."""
_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_OTHER: Final = "other"
_MS: Final = 0.001
_CYCLE_BUCKETS_S: Final = (0.1 * _MS, 0.3 * _MS, _MS, 3 * _MS, 0.01, 0.03, 0.1, 0.3, 1, 3)
_REQUEST_BUCKETS_S: Final = (_MS, 3 * _MS, 0.01, 0.03, 0.1, 0.25, 1, 3, 10, 60)
_WAIT_BUCKETS_S: Final = (0.1, 1, 10, 60, 300, 1_800, 3_600, 4 * 3_600, 12 * 3_600, 24 * 3_600, 7 * 24 * 3_600)

# One more series for each counter, which is not needed.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Instruments:
    """One set for each server. They may be used from any thread.

    Attributes:
        registry: has them all.
    """

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._requests = Counter(
            "millpond_http_requests", "Answered requests", ("method", "route", "status"), registry=registry
        )
        self._request_s = Histogram(
            "millpond_http_request_seconds",
            "Time from a request to the beginning of its answer",
            ("route",),
            registry=registry,
            buckets=_REQUEST_BUCKETS_S,
        )
        self._requests_of = cache(self._requests.labels)
        self._request_s_of = cache(self._request_s.labels)
        self._cycle_s = Histogram(
            "millpond_scheduler_cycle_seconds",
            "Time in which the scheduler decides what happens next",
            registry=registry,
            buckets=_CYCLE_BUCKETS_S,
        )
        self._wait_s = Histogram(
            "millpond_job_wait_seconds",
            "Time from when a job could start to its first start",
            ("queue",),
            registry=registry,
            buckets=_WAIT_BUCKETS_S,
        )
        self._suspended = Counter(
            "millpond_jobs_suspended", "Times that jobs left their cards to go on later", ("queue",), registry=registry
        )
        self._switching_s = Counter(
            "millpond_jobs_switching_seconds",
            "Time that jobs took to leave their cards and to come back, counted when they leave them again",
            ("queue",),
            registry=registry,
        )
        self._ended = Counter("millpond_jobs_ended", "Jobs that ended", ("queue", "kind", "state"), registry=registry)
        self._queues: dict[str, None] = {}

    def answered(self, method: str, route: str, status: int, after_s: float) -> None:
        """A request was answered.

        Args:
            route: the path as it was declared, parameters in braces; of what is no route, a word.
        """
        self._requests_of(method if method in _METHODS else _OTHER, route, status).inc()
        self._request_s_of(route).observe(after_s)

    def cycled(self, took_s: float) -> None:
        """The scheduler has decided."""
        self._cycle_s.observe(took_s)

    def started(self, info: JobInfo) -> None:
        """A job runs for the first time."""
        if info.first_started_at is not None:
            self._wait_s.labels(self._named(info.queue)).observe(max(0.0, info.first_started_at - info.queued_at))

    def suspended(self, info: JobInfo) -> None:
        """A job has left its cards for a while."""
        queue = self._named(info.queue)
        self._suspended.labels(queue).inc()
        self._switching_s.labels(queue).inc(info.switching_s)

    def ended(self, jobs: Iterable[JobInfo]) -> None:
        """Jobs have ended."""
        for info in jobs:
            self._ended.labels(self._named(info.queue), info.kind, info.state).inc()

    def _named(self, queue: str) -> str:
        """The label of a queue: the first ``MOST_QUEUES`` that something happens in have one of their own."""
        if queue not in self._queues and len(self._queues) >= MOST_QUEUES:
            return ALL_OTHERS
        self._queues[queue] = None
        return queue


class RequestMetrics:
    """An application whose answers are counted. WebSockets are not: they last as long as people like."""

    def __init__(self, app: ASGIApp, instruments: Instruments) -> None:
        self._app = app
        self._instruments = instruments

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = time.perf_counter()

        async def send_counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                took_s = time.perf_counter() - begun
                self._instruments.answered(scope["method"], _route(scope), message["status"], took_s)
            await send(message)

        await self._app(scope, receive, send_counted)


def _route(scope: Scope) -> str:
    """What was asked for, as one of few words: names in paths would be as many labels."""
    route = getattr(scope.get("route"), "path", None)
    if isinstance(route, str):
        return route
    is_proxied = scope["path"].startswith(PROXY_PREFIX) or job_addressed(scope) is not None
    return f"{PROXY_PREFIX}{{job}}" if is_proxied else "none"
