"""Ends jobs that wait and whose pods are gone, or too few: those that come later are a job of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from millpond.engines.kubernetes.adoption.adopted_executor import AdoptedExecutor
from millpond.engines.kubernetes.adoption.evictions import Evictions
from millpond.engines.kubernetes.adoption.gang_book import GangBook
from millpond.engines.kubernetes.adoption.gangs import POD, GangKey
from millpond.engines.kubernetes.loop_work import again_and_again, all_of
from millpond.engines.outbox import Outbox

GONE_AFTER_S: Final = 120.0
"""A job that waits ends when it has lacked pods for so long; at once where no owner could make others."""
LOOKS: Final = 40
"""So often it is looked in that time."""


class LostGangs:
    """Looks for them. Lives on the engine's loop."""

    def __init__(self, adopted: AdoptedExecutor, book: GangBook, evictions: Evictions, outbox: Outbox) -> None:
        self._adopted = adopted
        self._book = book
        self._evictions = evictions
        self._outbox = outbox
        self._since: dict[str, float] = {}

    def work(self) -> Coroutine[Any, Any, None]:
        """What is to run: it looks again and again."""
        return again_and_again(self._look_at_all, GONE_AFTER_S / LOOKS, "jobs without pods are not ended now")

    async def _look_at_all(self) -> None:
        whole = {gang.key for gang in self._book.find() if not gang.trouble}
        missing = {job: key for job, key in self._adopted.waiting_jobs.items() if key not in whole}
        self._since = {job: since for job, since in self._since.items() if job in missing}
        await all_of(self._look(job, key) for job, key in missing.items())

    async def _look(self, job: str, key: GangKey) -> None:
        now = asyncio.get_running_loop().time()
        since = self._since.setdefault(job, now)
        patience_s = 0.0 if key.kind == POD else GONE_AFTER_S
        if now - since >= patience_s and not await self._evictions.is_paused_for(key, job):
            few = "not all of its pods are there any more" if self._book.waiting(key) else "it has no pods any more"
            self._outbox.ask_to_stop(job, f"{key.text}: {few}")
            self._since[job] = now + GONE_AFTER_S
