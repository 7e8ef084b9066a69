"""What happened, as the API shows it: to a job, to a machine, to everything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from millpond.server.jobs.sweeps.trials import Trials
from millpond.server.store.histories import History
from millpond.server.store.store import Store
from millpond.server.views.job_history import account, answered, story
from millpond.server.views.job_lookup import JobLookup
from millpond.server.views.reasons import last_of_array
from millpond.server.views.visibility import Reader
from millpond.specs.api.events import EventInfo


class EventLog:
    """Shows the log to the users who may see it.

    Args:
        sweeps: the trials of sweeps.
    """

    def __init__(self, store: Store, lookup: JobLookup, sweeps: Trials) -> None:
        self._store = store
        self._lookup = lookup
        self._sweeps = sweeps

    async def of_job(self, job: str, reader: Reader) -> list[EventInfo]:
        """A job's history."""
        info = await asyncio.to_thread(self._lookup.look, job)
        lines = story(*await asyncio.to_thread(self._store.histories.of_job, job))
        if info.array is not None and info.ended_at is not None:
            trials = await asyncio.to_thread(self._sweeps.table, info, 1) if info.array.sweep else None
            lines.append(last_of_array(info, info.array, trials, len(lines) + 1))
        return await asyncio.to_thread(lambda: [reader.event(event, self._lookup.find) for event in lines])

    async def latest(self, after: int | None, limit: int, reader: Reader) -> list[EventInfo]:
        """What happened to jobs and nodes: the first behind a place in the log, or the latest."""
        shown = await asyncio.to_thread(self._shown, lambda: self._store.histories.happenings(after, limit), reader)
        return shown if after is not None else shown[-limit:]

    async def of_node(self, node: str, limit: int, reader: Reader) -> list[EventInfo]:
        """The latest that happened to a machine, whether it is still there or not."""
        return await asyncio.to_thread(self._shown, lambda: self._store.histories.of_node(node, limit), reader)

    def _shown(self, part: Callable[[], History], reader: Reader) -> list[EventInfo]:
        """A part of the log, without what is about jobs that these readers may not see."""
        happened, decided = part()
        lines = account(happened, decided, self._store.histories.decisions(answered(happened)))
        find = self._lookup.find
        return [reader.event(event, find) for event in lines if reader.hears_of(event, find)]
