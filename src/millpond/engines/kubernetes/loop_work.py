"""Work beside everything else on the engine's loop: a defect of it is the engine's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

from millpond.engines.outbox import Outbox
from millpond.node.host.periodic_worker import PassTrouble


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


async def again_and_again(work: Callable[[], Awaitable[None]], every_s: float, trouble: str) -> None:
    """Do a pass every so many seconds, for ever: what ``PeriodicWorker`` is on a thread.

    Args:
        trouble: begins the log line of an error that has ended a pass.
    """
    noted = PassTrouble(trouble)
    while True:
        await asyncio.sleep(every_s)
        try:
            await work()
        except Exception as error:
            noted.note(error)
        else:
            noted.over()


async def all_of(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Do all of it to its end, and only then say what went wrong first."""
    parts = tuple(work)
    if len(parts) == 1:
        await parts[0]
        return
    for result in await asyncio.gather(*parts, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
