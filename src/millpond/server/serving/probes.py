"""Readiness probes of replicas, asked anew from a thread; the proxy keeps answers (``proxy.load_balancer``)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from millpond.engines.task_access import TaskAccess
from millpond.server.serving.proxy.endpoints import TaskEndpoint
from millpond.server.serving.proxy.load_balancer import ANSWER_WITHIN_S, Readiness
from millpond.specs.job.serving import Serve

MOST_AT_ONCE: Final = 200
"""Replicas that are asked at the same time; each may take ``ANSWER_WITHIN_S``, and a connection."""


class Probe:
    """Asks replicas; for one thread, which has no event loop."""

    def __init__(self, access: TaskAccess) -> None:
        self._readiness = Readiness(access)
        self._runner = asyncio.Runner()

    def close(self) -> None:
        """No more questions."""
        self._runner.run(self._readiness.aclose())
        self._runner.close()

    def ready_ones(self, replicas: Sequence[tuple[TaskEndpoint, Serve]]) -> list[TaskEndpoint]:
        """Those of some replicas that answer as their job files say; where these say nothing, that take connections."""
        return self._runner.run(self._ready_ones(replicas)) if replicas else []

    async def _ready_ones(self, replicas: Sequence[tuple[TaskEndpoint, Serve]]) -> list[TaskEndpoint]:
        free = asyncio.Semaphore(MOST_AT_ONCE)

        async def is_ready(place: TaskEndpoint, serve: Serve) -> bool:
            path = serve.ready_path(place.task.job)
            async with free:
                return await takes_connections(place) if path is None else bool(await self._readiness.ask(place, path))

        said = await asyncio.gather(*(is_ready(place, serve) for place, serve in replicas))
        return [place for (place, _), ready in zip(replicas, said, strict=True) if ready]


async def takes_connections(place: TaskEndpoint) -> bool:
    """Whether a program listens there."""
    try:
        (await place.way.connect(ANSWER_WITHIN_S)).close()
    except OSError:
        return False
    return True
