"""The pool at a glance: what is free, what starts next and when, what is held and does not compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from millpond.server.jobs.reasons import Reasons
from millpond.server.monitoring.idle_cards import IDLE_AFTER_S, IdleCards
from millpond.server.runtime.active_jobs.job_cache import JobCache
from millpond.server.runtime.queries import CoreQueries
from millpond.server.views.pool_room import idle_holders, rooms_of
from millpond.server.views.visibility import Reader
from millpond.specs.api.pool.nodes import NodeInfo
from millpond.specs.api.pool.overview import NextJob, OverviewInfo

NEXT_SHOWN: Final = 8
_LOOKED_AT: Final = 40
"""So many at the head of the line are looked at for some that a reader may see."""


class Overview:
    """Makes overviews.

    Args:
        idle_cards: since when held cards have not computed.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        job_cache: JobCache,
        queries: CoreQueries,
        reasons: Reasons,
        idle_cards: IdleCards,
        clock: Callable[[], float],
    ) -> None:
        self._job_cache = job_cache
        self._queries = queries
        self._reasons = reasons
        self._idle_cards = idle_cards
        self._clock = clock

    async def of(self, nodes: list[NodeInfo], reader: Reader) -> OverviewInfo:
        """An overview of these machines and all jobs, as a reader may see it."""
        jobs = self._job_cache.newest_first()
        now = self._clock()
        seen = [info for info in jobs if reader.sees(info)]
        return OverviewInfo(
            at=now,
            nodes=len(nodes),
            closed_nodes=sum(not node.schedulable for node in nodes),
            jobs=dict(sorted(self._job_cache.counts().items())),
            models=rooms_of(nodes),
            next=await self._next(reader),
            idle=idle_holders(seen, self._idle_cards.since, now),
            idle_after_s=IDLE_AFTER_S,
        )

    async def _next(self, reader: Reader) -> list[NextJob]:
        """Those at the head of the line that the reader may see, each with its reason and when it should start."""
        line = await self._queries.query(lambda core: core.scheduler.first_in_line(_LOOKED_AT, core.now))
        found: list[NextJob] = []
        for position, job in enumerate(line, start=1):
            info = self._job_cache.get(job)
            if info is None or not reader.sees(info):
                continue
            reason = await self._reasons.of(job)
            if reason is None:
                continue
            shown = await self._reasons.veiled(reason, reader)
            start = shown.start if shown.start is not None and not shown.start.unknown else None
            found.append(
                NextJob(
                    job=job,
                    name=info.name,
                    user=info.user,
                    queue=info.queue,
                    gpus=info.gpus,
                    position=position,
                    reason=shown.summary,
                    start=start,
                )
            )
            if len(found) == NEXT_SHOWN:
                break
        return found
