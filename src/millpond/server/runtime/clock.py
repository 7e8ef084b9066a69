"""The scheduler's clock: the wall clock, except that it never runs back when that is set back.

The log's instants never run back. A scheduler that waited until the wall clock has caught up would end no time limit
for as long as the clock was set back; after a jump far forward by mistake, for years. So its time goes on, a little
slower than the real one, until the wall clock has caught up.

A clock that is set forward is followed, as hours of the day depend on it. That cannot be taken back, so a leap by more
than an hour is followed only after it has stood for ten minutes: a clock that was years ahead for some seconds changes
nothing. The seconds that were skipped are reported (``skipped``), so that they count for no time limit. The time that
has passed is measured by the time since the machine's boot, which cannot be set. The offset between the two is kept in
a file, so that this holds over restarts of the server.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from millpond.node.host.files import write_json
from millpond.node.host.procfs import boot_id

log = logging.getLogger(__name__)

SLOWER_BY: Final = 0.1
"""How much less passes in a second while the wall clock is behind: it catches up, and limits are late by a ninth."""
TOLERATED_S: Final = 1.0
"""A clock that is corrected by less is waited for, or followed without a log line."""
LOGGED_FROM_S: Final = 60.0
"""A clock that is set forward by more is logged."""
LEAPT_FROM_S: Final = 3600.0
"""A clock that is set forward by more is not followed before it has stood so for ``BELIEVED_AFTER_S``."""
BELIEVED_AFTER_S: Final = 600.0
_AT_ONCE_S: Final = 0.1
"""Two clocks are read at once where no more time passes from the first to the second."""
_READ_AGAIN: Final = 10


def since_boot() -> float:
    """Seconds since the machine was started, those in which it slept included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def on_wall_clock(instant: float, now: float, wall: float) -> float:
    """What the wall clock will show at an instant of the scheduler's time.

    Args:
        now: the scheduler's time now; ahead of the wall clock after that was set back.
        wall: what the wall clock shows now.
    """
    ahead_s, left_s = now - wall, instant - now
    if ahead_s <= TOLERATED_S or left_s * SLOWER_BY >= ahead_s * (1.0 - SLOWER_BY):
        return instant  # they are the same by then
    return wall + (left_s / (1.0 - SLOWER_BY) if left_s > 0.0 else left_s)


class SteadyClock:
    """Seconds since 1970 that never run back and never stand still for long.

    Args:
        since: the latest instant that is known; a server that is started behind it goes on from there.
        wall: seconds since 1970 as the machine has them.
        steady: seconds of a clock that cannot be set.
        kept: the offset between the two over restarts; without one, time while the server was down counts as
            the wall clock has it.
    """

    def __init__(
        self,
        since: float,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = since_boot,
        kept: KeptOffset | None = None,
    ) -> None:
        self._wall = wall
        self._steady = steady
        self._kept = kept
        self._latest = since
        self._looked_at = steady()
        self._is_behind = False
        self._lag_s = 0.0
        self._skipped_s = 0.0
        self._leapt_at: float | None = None
        offset = None if kept is None else kept.offset_s
        self._is_known = offset is not None
        if offset is not None:
            self._latest = max(since, self._looked_at + offset)

    def __call__(self) -> float:
        """The time now."""
        wall, steady = self._read()
        passed, self._looked_at = steady - self._looked_at, steady
        ahead_s = wall - (self._latest + passed)
        if self._is_doubted(ahead_s - self._lag_s):
            self._latest += passed
            return self._latest
        if ahead_s < -TOLERATED_S:
            if not self._is_behind:
                log.warning("the clock was set back by %.0f s; scheduling goes on until it has caught up", -ahead_s)
            self._latest += passed * (1.0 - SLOWER_BY)
            self._lag_s += passed * SLOWER_BY
            self._is_behind = True
        else:
            if ahead_s - self._lag_s > TOLERATED_S and self._is_known:
                self._skip(ahead_s - self._lag_s)
            self._is_behind, self._lag_s = False, 0.0
        self._latest = max(self._latest, wall)
        self._is_known = True
        if self._kept is not None:
            self._kept.keep(self._latest - steady)
        return self._latest

    def skipped(self) -> float:
        """By how many seconds the clock was set forward since this was last asked; as of the latest look at it."""
        skipped, self._skipped_s = self._skipped_s, 0.0
        return skipped

    def _is_doubted(self, leapt_s: float) -> bool:
        """Whether the clock has leapt so far, so lately, that somebody may set it right again."""
        if leapt_s <= LEAPT_FROM_S or not self._is_known:
            self._leapt_at = None
            return False
        if self._leapt_at is None:
            self._leapt_at = self._looked_at
            log.warning(
                "the clock was set forward by %.0f s; it is followed in %.0f s, unless it is set right before",
                leapt_s,
                BELIEVED_AFTER_S,
            )
        return self._looked_at - self._leapt_at < BELIEVED_AFTER_S

    def _skip(self, seconds: float) -> None:
        self._skipped_s += seconds
        if seconds > LOGGED_FROM_S:
            log.warning(
                "the clock was set forward by %.0f s; windows follow it, time limits do not count them", seconds
            )

    def _read(self) -> tuple[float, float]:
        """Both clocks at one instant, also where the process is halted between two reads."""
        for _ in range(_READ_AGAIN):
            before, wall, steady = self._steady(), self._wall(), self._steady()
            if steady - before <= _AT_ONCE_S:
                break
        return wall, steady


class KeptOffset:
    """A file with how far the scheduler's time is ahead of the time since the boot; it counts for one boot.

    Attributes:
        offset_s: as it was kept last; None where nothing is known of this boot.
    """

    def __init__(self, path: Path, boot: Callable[[], str] = boot_id) -> None:
        self._path = path
        self._boot = boot()
        self.offset_s: float | None = None
        try:
            kept = json.loads(path.read_text())
            if kept["boot_id"] == self._boot:
                self.offset_s = float(kept["offset_s"])
        except (OSError, ValueError, KeyError, TypeError):
            return  # there is none, or none that could be believed

    def keep(self, offset_s: float) -> None:
        """Write it down, where it differs from what is written."""
        if self.offset_s is not None and abs(offset_s - self.offset_s) < TOLERATED_S / 2:
            return
        self.offset_s = offset_s
        try:
            write_json(self._path, {"boot_id": self._boot, "offset_s": offset_s})
        except OSError as error:
            log.warning("how far the clock is from the time since the boot cannot be written down: %s", error)
