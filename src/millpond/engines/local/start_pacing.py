"""How many starts are under way at once: a start is work for the processor, and the server wants some of it too."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from typing import Final

Leave = Callable[[], None]

AT_ONCE: Final = 8
"""For each processor that this process may use."""
LONGEST_S: Final = 0.25
"""A start that takes longer waits for something (a disk, a container's runtime) and makes room for others."""


class Pace:
    """Lets starts in, the first come first, a few at once for each processor.

    Hundreds at once would all be late, and with them all requests to the server meanwhile. One at a time, the
    scheduler would have to take note of each by itself. Lives on one loop.

    Args:
        most: how many are in at once.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int | None = None) -> None:
        self._loop = loop
        self._most = most or AT_ONCE * len(os.sched_getaffinity(0))
        self._inside = 0
        self._queue: deque[Callable[[Leave], None]] = deque()

    def enter(self, begin: Callable[[Leave], None]) -> None:
        """Call ``begin`` now or when there is room, with what it is to call once it is through."""
        self._queue.append(begin)
        self._admit()

    def _admit(self) -> None:
        while self._queue and self._inside < self._most:
            begin = self._queue.popleft()
            self._inside += 1
            visit = _QueuedStart(self._left)
            self._loop.call_later(LONGEST_S, visit.leave)
            begin(visit.leave)

    def _left(self) -> None:
        self._inside -= 1
        self._loop.call_soon(self._admit)


class _QueuedStart:
    def __init__(self, left: Leave) -> None:
        self._left: Leave | None = left

    def leave(self) -> None:
        left, self._left = self._left, None
        if left is not None:
            left()
