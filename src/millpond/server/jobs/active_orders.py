"""Orders of the jobs that have not ended, by something else than the time of submission.

They are thousands at the most and in memory, so that a list sorts them anew. Those that have ended are listed by time
alone, by an index of the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from millpond.model.states import JobState
from millpond.model.workloads import Priority
from millpond.server.runtime.loop import Loop
from millpond.specs.api.jobs.jobs import ActiveOrder, JobInfo

Place = tuple[float, float, str]
"""Where a job stands in a list; no two jobs have the same."""

_ALL: Final = 10**9
_KEPT_FOR: Final = 20
"""What one look took, so many times over, the line that it found is used."""
_LEFT: Final = -1.0
_NOT_IN_LINE: Final = float("inf")


class ActiveOrders:
    """Says where jobs stand in a list, for the event loop alone.

    To rank thousands that wait takes the scheduler's thread tens of milliseconds, so the line is used for a while.

    Args:
        clock: seconds that never go back.
    """

    def __init__(self, loop: Loop, clock: Callable[[], float]) -> None:
        self._loop = loop
        self._clock = clock
        self._line: Mapping[str, int] = {}
        self._until = float("-inf")
        self._turn = asyncio.Lock()

    async def place_by(self, order: ActiveOrder) -> Callable[[JobInfo], Place]:
        """What gives each job its place.

        ``line`` is for those that wait. Any other has left the line, and so stood before all that are in it; those that
        wait outside of it, such as for other jobs, stand behind it.
        """
        match order:
            case "cards":
                return _by_cards
            case "priority":
                return _by_priority
            case "line":
                line = await self._line_now()
                return lambda info: (_place_in(line, info), -info.submitted_at, info.id)

    async def _line_now(self) -> Mapping[str, int]:
        """The numbers of all jobs that wait in line."""
        async with self._turn:
            begun = self._clock()
            if begun >= self._until:
                ask = self._loop.ask(lambda core: core.scheduler.first_in_line(_ALL, core.now), is_long=True)
                self._line = {job: number for number, job in enumerate(await ask)}
                now = self._clock()
                self._until = now + _KEPT_FOR * (now - begun)
        return self._line


def _place_in(line: Mapping[str, int], info: JobInfo) -> float:
    return line.get(info.id, _NOT_IN_LINE) if info.state == JobState.QUEUED else _LEFT


def _by_cards(info: JobInfo) -> Place:
    return -info.gpu_milli, -info.submitted_at, info.id


def _by_priority(info: JobInfo) -> Place:
    return -Priority[info.priority.upper()], info.submitted_at, info.id
