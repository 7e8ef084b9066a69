"""The page that a Prometheus reads, made when it asks."""

from __future__ import annotations

import asyncio

from millpond.server.monitoring.metrics.exposition import MetricsState, page
from millpond.server.monitoring.metrics.instruments import Instruments
from millpond.server.runtime.inbox import wall_clock
from millpond.server.views.job_cache import JobCache
from millpond.server.views.machines import Machines
from millpond.server.views.visibility import EVERYBODY


class Scrape:
    """Makes the page of what was counted and what stands now.

    Args:
        version: the server's.
    """

    def __init__(self, version: str, instruments: Instruments, machines: Machines, job_cache: JobCache) -> None:
        self._version = version
        self._instruments = instruments
        self._machines = machines
        self._job_cache = job_cache

    async def page(self) -> bytes:
        """Everything, in the text format of Prometheus."""
        nodes, devices = await self._machines.all(EVERYBODY), await self._machines.devices(EVERYBODY, 0)
        standing = MetricsState(wall_clock(), self._version, self._job_cache.newest_first(), nodes, devices)
        return await asyncio.to_thread(page, self._instruments.registry, standing)
