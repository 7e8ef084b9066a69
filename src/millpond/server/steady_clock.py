"""The scheduler's time: that of the wall clock, except that it does not stand still when that is set back.

The log's instants never run back. If the scheduler just waited until the wall clock is where it was, no time limit
would end and no turn would pass for as long as it was set back; after a jump far forward by mistake, for years. So its
time goes on, a little slower than the real one, until the wall clock has caught up.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

PACE: Final = 0.9
"""Seconds that pass for each real one while the wall clock is behind: limits are late by a ninth, and it catches up."""
TOLERATED_S: Final = 1.0
"""A clock that is corrected by less is waited for."""
TOLD_FROM_S: Final = 60.0
"""Of a clock that is set forward by more the server's log tells."""


class SteadyClock:
    """Seconds since 1970 that never run back and never stand still for long.

    Args:
        since: the latest instant that is known; a server that is started behind it goes on from there.
        wall: seconds since 1970 as the machine has them.
        steady: seconds that nobody can set.
    """

    def __init__(
        self, since: float, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._wall = wall
        self._steady = steady
        self._latest = since
        self._looked_at = steady()
        self._is_behind = False
        self._was_asked = False

    def __call__(self) -> float:
        """The time now."""
        wall, steady = self._wall(), self._steady()
        passed, self._looked_at = steady - self._looked_at, steady
        behind_s = self._latest + passed - wall
        if behind_s > TOLERATED_S:
            if not self._is_behind:
                log.warning("the clock was set back by %.0f s; scheduling goes on until it has caught up", behind_s)
            self._latest += passed * PACE
        elif behind_s < -TOLD_FROM_S and self._was_asked:
            log.warning("the clock was set forward by %.0f s; time limits and windows count them", -behind_s)
        self._latest = max(self._latest, wall)
        self._is_behind = behind_s > TOLERATED_S
        self._was_asked = True
        return self._latest
