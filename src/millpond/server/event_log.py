"""What happened, as the API tells it: to a job, to a machine, to everything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from millpond.server.audience import Audience
from millpond.server.explaining import last_of_array
from millpond.server.history import account, answered, story
from millpond.server.lookup import Lookup
from millpond.server.store.histories import History
from millpond.server.store.store import Store
from millpond.server.sweeps.trials import Trials
from millpond.specs.event_bodies import EventInfo


class EventLog:
    """Reads the log to whoever may hear of it.

    Args:
        sweeps: the trials of sweeps.
    """

    def __init__(self, store: Store, lookup: Lookup, sweeps: Trials) -> None:
        self._store = store
        self._lookup = lookup
        self._sweeps = sweeps

    async def of_job(self, job: str, audience: Audience) -> list[EventInfo]:
        """A job's history."""
        info = await asyncio.to_thread(self._lookup.look, job)
        told = story(*await asyncio.to_thread(self._store.history, job))
        if info.array is not None and info.ended_at is not None:
            trials = await asyncio.to_thread(self._sweeps.table, info, 1) if info.array.sweep else None
            told.append(last_of_array(info, info.array, trials, len(told) + 1))
        return await asyncio.to_thread(lambda: [audience.event(event, self._lookup.find) for event in told])

    async def latest(self, after: int | None, limit: int, audience: Audience) -> list[EventInfo]:
        """What happened to jobs and nodes: the first behind a place in the log, or the latest."""
        told = await asyncio.to_thread(self._told, lambda: self._store.happenings(after, limit), audience)
        return told if after is not None else told[-limit:]

    async def of_node(self, node: str, limit: int, audience: Audience) -> list[EventInfo]:
        """The latest that happened to a machine, whether it is still there or not."""
        return await asyncio.to_thread(self._told, lambda: self._store.node_history(node, limit), audience)

    def _told(self, part: Callable[[], History], audience: Audience) -> list[EventInfo]:
        """What there is to tell of a part of the log, without what is about jobs that are not for these readers."""
        happened, decided = part()
        told = account(happened, decided, self._store.decisions_by_id(answered(happened)))
        find = self._lookup.find
        return [audience.event(event, find) for event in told if audience.hears_of(event, find)]
