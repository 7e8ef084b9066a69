"""The overview of the pool: free cards, the jobs that start next and when, and cards that are held and idle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from millpond.server.jobs.next_jobs import NextJobs
from millpond.server.monitoring.idle_cards import IDLE_AFTER_S, IdleCards
from millpond.server.runtime.active_jobs.job_cache import JobCache
from millpond.server.views.hardware.pool_room import PoolRooms, idle_holders
from millpond.server.views.visibility import Reader
from millpond.specs.api.pool.nodes import NodeInfo
from millpond.specs.api.pool.overview import NextJob, OverviewInfo


class Overview:
    """Makes overviews.

    Args:
        next_jobs: what starts next.
        idle_cards: since when held cards have not computed.
        clock: seconds since 1970.
    """

    def __init__(
        self, job_cache: JobCache, next_jobs: NextJobs, idle_cards: IdleCards, clock: Callable[[], float]
    ) -> None:
        self._job_cache = job_cache
        self._next_jobs = next_jobs
        self._idle_cards = idle_cards
        self._clock = clock
        self._rooms = PoolRooms()

    async def of(self, nodes: list[NodeInfo], reader: Reader, within_s: float | None = None) -> OverviewInfo:
        """An overview of these machines and all jobs, as a reader may see it.

        Args:
            within_s: as of ``NextJobs.of``.
        """
        return await asyncio.to_thread(self._of, nodes, reader, await self._next_jobs.of(reader, within_s))

    def _of(self, nodes: list[NodeInfo], reader: Reader, next_jobs: list[NextJob]) -> OverviewInfo:
        now = self._clock()
        living = self._job_cache.newest_first()
        seen = [info for info in living if reader.sees(info)]
        return OverviewInfo(
            at=now,
            nodes=len(nodes),
            closed_nodes=sum(not node.schedulable for node in nodes),
            jobs=dict(sorted(self._job_cache.counts().items())),
            arrays=sum(info.array is not None for info in living),
            models=self._rooms.of(nodes),
            next=next_jobs,
            idle=idle_holders(seen, self._idle_cards.since, now),
            idle_after_s=IDLE_AFTER_S,
        )
