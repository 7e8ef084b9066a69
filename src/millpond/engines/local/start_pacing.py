"""Pace starts: how many are under way at once, as a start takes processor time that the server needs too."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from functools import partial
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
        self._inside: set[object] = set()
        self._queue: deque[Callable[[Leave], None]] = deque()

    def enter(self, begin: Callable[[Leave], None]) -> None:
        """Call ``begin`` now or when there is room, with what it is to call once it is through."""
        self._queue.append(begin)
        self._admit()

    def _admit(self) -> None:
        while self._queue and len(self._inside) < self._most:
            start = object()
            self._inside.add(start)
            leave = partial(self._leave, start)
            self._loop.call_later(LONGEST_S, leave)
            self._queue.popleft()(leave)

    def _leave(self, start: object) -> None:
        if start in self._inside:
            self._inside.remove(start)
            self._loop.call_soon(self._admit)
