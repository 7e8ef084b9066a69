"""Work beside everything else on the engine's loop: a defect of it is the engine's."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

from millpond.engines.outbox import Outbox


class LoopWork:
    """Holds on to what is under way. Lives on one event loop."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside everything else."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._outbox.fail(error)


async def all_of(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Do all of it to its end, and only then say what went wrong first."""
    parts = tuple(work)
    if len(parts) == 1:
        await parts[0]
        return
    for result in await asyncio.gather(*parts, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
