"""Ends jobs that wait and whose pods are gone, or too few: those that come later are a job of their own."""

from __future__ import annotations

import asyncio
from typing import Final

from millpond.engines.kubernetes.adoption.adopted_executor import AdoptedExecutor
from millpond.engines.kubernetes.adoption.evictions import Evictions
from millpond.engines.kubernetes.adoption.gang_book import GangBook
from millpond.engines.kubernetes.adoption.gangs import POD, GangKey
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

    async def run(self) -> None:
        """Look again and again."""
        while True:
            await asyncio.sleep(GONE_AFTER_S / LOOKS)
            whole = {gang.key for gang in self._book.find() if not gang.trouble}
            missing = {job: key for job, key in self._adopted.waiting_jobs.items() if key not in whole}
            self._since = {job: since for job, since in self._since.items() if job in missing}
            for job, key in missing.items():
                await self._look(job, key)

    async def _look(self, job: str, key: GangKey) -> None:
        now = asyncio.get_running_loop().time()
        since = self._since.setdefault(job, now)
        patience_s = 0.0 if key.kind == POD else GONE_AFTER_S
        if now - since >= patience_s and not await self._evictions.is_paused_for(key, job):
            few = "not all of its pods are there any more" if self._book.waiting(key) else "it has no pods any more"
            self._outbox.ask_to_stop(job, f"{key.text}: {few}")
            self._since[job] = now + GONE_AFTER_S
