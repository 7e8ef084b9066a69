"""What starts next: the head of the line, each job with its reason and when it should start.

Where thousands wait, one estimate takes the scheduler's thread a tenth of a second, and something changes all the time.
So what took long to find is kept for a multiple of that time. A page is not kept waiting for it either: it has what is
known, and is told to look again when there is more (``version``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice
from typing import Final

from millpond.model.states import JobState
from millpond.node.host.clocks import MonotonicClock, WallClock
from millpond.server.jobs.reasons import Reasons
from millpond.server.monitoring.idle_cards import IDLE_AFTER_S, IdleCards
from millpond.server.runtime.active_jobs.job_cache import JobCache
from millpond.server.runtime.loop import Loop
from millpond.server.views.hardware.pool_room import PoolRooms, idle_holders
from millpond.server.views.visibility import Reader
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.api.jobs.reasons import ReasonInfo
from millpond.specs.api.pool.nodes import NodeInfo
from millpond.specs.api.pool.overview import NextJob, OverviewInfo

NEXT_SHOWN: Final = 8
_LOOKED_AT: Final = 40
"""So many at the head of the line are looked at for some that a reader may see."""
_QUICK_S: Final = 0.1
"""A look that took less is taken anew for everybody who asks."""
_KEPT_FOR: Final = 20
"""What a longer one found is kept for so many times as long."""
_MOST_LOOKS: Final = 3
"""So often at the most a reader waits for more, as the line moves on meanwhile."""


class NextJobs:
    """Lists what starts next. For the event loop alone.

    Attributes:
        version: rises when something was found that was asked for before.
    """

    def __init__(self, loop: Loop, reasons: Reasons, clock: MonotonicClock) -> None:
        self._loop = loop
        self._reasons = reasons
        self._clock = clock
        self.version = 0
        self._line: Sequence[str] = ()
        self._found: dict[str, ReasonInfo | None] = {}
        self._until = float("-inf")
        self._look: asyncio.Task[None] | None = None

    async def of(self, reader: Reader, within_s: float | None) -> list[NextJob]:
        """Those at the head of the line that the reader may see.

        Args:
            within_s: after so long what is known has to do; None: all is waited for.
        """
        asked_at = self._clock()
        for _ in range(_MOST_LOOKS):
            if self._knows_all(reader, asked_at):
                break
            if self._look is None or self._look.done():
                self._look = asyncio.create_task(self._look_for(reader))
                self._look.add_done_callback(_noticed)
            await asyncio.wait({self._look}, timeout=within_s)
            if not self._look.done():
                break
            self._look.result()
        shown = (self._shown(position, info, reader) for position, info in self._seen(reader))
        found = await asyncio.gather(*shown)  # so that all that is asked in short takes one turn of the scheduler
        still = {info.id for _, info in self._seen(reader)}  # some have started meanwhile
        return [each for each in found if each is not None and each.job in still]

    def _seen(self, reader: Reader) -> list[tuple[int, JobInfo]]:
        """The jobs that a reader is shown, as far as they wait still, each with its place."""
        placed = ((position, self._loop.job_cache.get(job)) for position, job in enumerate(self._line, start=1))
        waiting = (
            (position, info)
            for position, info in placed
            if info is not None and info.state == JobState.QUEUED and reader.sees(info)
        )
        return list(islice(waiting, NEXT_SHOWN))

    def _knows_all(self, reader: Reader, at: float) -> bool:
        return self._until >= at and all(info.id in self._found for _, info in self._seen(reader))

    async def _look_for(self, reader: Reader) -> None:
        """Find what is missing for a reader, and all anew that was kept for long enough."""
        begun = self._clock()
        is_anew = self._until < begun
        if is_anew:
            line = await self._loop.ask(lambda core: core.scheduler.first_in_line(_LOOKED_AT, core.now))
            self.version += line != self._line
            self._line = line
        known = {} if is_anew else dict(self._found)
        for _, info in self._seen(reader):
            if info.id not in known:
                known[info.id] = reason = await self._reasons.of(info.id)
                self.version += info.id not in self._found or self._found[info.id] != reason
                self._found[info.id] = reason
        self._found = known
        if is_anew:
            now = self._clock()
            took_s = now - begun
            self._until = now + (_KEPT_FOR * took_s if took_s > _QUICK_S else 0.0)

    async def _shown(self, position: int, info: JobInfo, reader: Reader) -> NextJob | None:
        """A job that waits; None of one that has started by what is known of it."""
        found = self._found.get(info.id)
        if found is None:
            now = await self._reasons.explained(info, reader)
            state, summary, start = now.state, now.reason, None
        else:
            reason = await self._reasons.veiled(found, reader)
            state, summary, start = found.state, reason.summary, reason.start
        if state != JobState.QUEUED:
            return None
        return NextJob(
            job=info.id,
            name=info.name,
            user=info.user,
            queue=info.queue,
            gpus=info.gpus,
            position=position,
            reason=summary,
            start=start if start is not None and not start.unknown else None,
        )


def _noticed(look: asyncio.Task[None]) -> None:
    """A look that failed when nobody waited for it any more: the next one who asks looks again, and is told."""
    if not look.cancelled():
        look.exception()


class Overview:
    """Makes overviews of the pool: free cards, the jobs that start next, and cards that are held and idle.

    Args:
        next_jobs: what starts next.
        idle_cards: since when held cards have not computed.
    """

    def __init__(self, job_cache: JobCache, next_jobs: NextJobs, idle_cards: IdleCards, clock: WallClock) -> None:
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
