"""Watches the server's disk: below a floor nothing new starts, and users who hold more than they may are warned.

While there is room, it sees to it that the store keeps some within itself for when there is none.

Which bytes a task that fills the disk can do without is not known from the outside, so it is not ended: its history
says what is wrong, and nothing more of its owner's is accepted.
"""

from __future__ import annotations

import logging
import shutil
import time
from pathlib import Path
from typing import Final

from sqlalchemy.exc import DBAPIError

from millpond.model.events import Noted, SchedulingPaused, SchedulingResumed
from millpond.model.reasons import Cause
from millpond.node.host.clocks import WallClock
from millpond.node.host.periodic_worker import EXPECTED, Periodic, PeriodicWorker
from millpond.server.runtime.loop import Loop
from millpond.server.storage.disk_use import KEPT_FOR_ENDS_BYTES, MAKE_ROOM, DiskBooks
from millpond.server.store.connection.reserve import RESERVE_BYTES
from millpond.server.store.store import Store
from millpond.specs.quantities import size_text

log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 5.0
MEASURE_EVERY_S: Final = 60.0
"""Between two measurements of what all users hold."""
MEASURING_SHARE: Final = 0.05
"""Part of the time that goes into them at most: a home may have millions of files."""
_GIB: Final = 2**30
_USUAL_FLOOR: Final = _GIB
_USUAL_SHARE: Final = 0.02
_FREED_AT: Final = 1.1
"""Work starts again when so many times the floor is free, so that it does not go on and off."""


class DiskWatch(Periodic):
    """One thread that looks at what is free.

    Args:
        floor_gib: nothing new starts while less is free; None: 1 GiB, on small disks 2 % of them.
    """

    def __init__(
        self,
        loop: Loop,
        store: Store,
        books: DiskBooks,
        state_dir: Path,
        floor_gib: float | None,
        clock: WallClock,
    ) -> None:
        self._loop = loop
        self._store = store
        self._books = books
        self._state_dir = state_dir
        self._clock = clock
        usual = min(_USUAL_FLOOR, int(shutil.disk_usage(state_dir).total * _USUAL_SHARE))
        self._floor = usual if floor_gib is None else int(floor_gib * _GIB)
        self._full = ""
        self._keeps = False
        self._worker = PeriodicWorker(
            "disk-watch", self._pass, LOOK_EVERY_S, "the disk cannot be measured", (*EXPECTED, DBAPIError)
        )

    def look_at_room(self) -> None:
        """Hold starts while there is too little room, let them go when there is enough again."""
        free = self._books.free(self._state_dir)
        held = self._loop.paused.get(Cause.DISK_FULL)
        if held is None and free < self._floor:
            there, wanted = size_text(free), size_text(self._floor)
            text = f"{there} are free on the server's disk, and at least {wanted} should be; {MAKE_ROOM}"
            log.warning("nothing new starts: %s", text)
            self._loop.notify([SchedulingPaused(self._clock(), Cause.DISK_FULL, text)])
        elif held is not None and free >= self._floor * _FREED_AT:
            log.info("there is room again: %s are free", size_text(free))
            self._loop.notify([SchedulingResumed(self._clock(), Cause.DISK_FULL)])

    def look_at_reserve(self) -> None:
        """Have the store keep room within itself, as long as that takes none from others.

        A store that grows uses it up again and again: that it is kept is logged once, and again after a full disk.

        Raises:
            DBAPIError: the store cannot be written.
        """
        if self._books.free(self._state_dir) < KEPT_FOR_ENDS_BYTES + 2 * RESERVE_BYTES:
            self._keeps = False
        elif self._store.reserve.refill() and not self._keeps:
            self._keeps = True
            log.info("%s are kept within the database for ends on a full disk", size_text(RESERVE_BYTES))

    def look_at_full_disk(self) -> None:
        """Log when no more work is accepted, and when it is again.

        Raises:
            DBAPIError: the store cannot be read.
        """
        full = self._books.full()
        if full and not self._full:
            kept = self._store.reserve.kept_bytes()
            rest = f"; {size_text(kept)} are kept within the database for stops and ends" if kept else ""
            log.error("nothing is taken on: %s%s", full, rest)
        elif self._full and not full:
            log.info("jobs are taken on again")
        self._full = full

    def _pass(self) -> None:
        self.look_at_room()
        self.look_at_full_disk()
        self.look_at_reserve()


class HoldersWatch(Periodic):
    """One thread that measures what all users hold, and warns those whose jobs run and who hold too much."""

    def __init__(self, loop: Loop, books: DiskBooks, clock: WallClock) -> None:
        self._loop = loop
        self._books = books
        self._clock = clock
        self._warned: dict[str, str] = {}
        self._worker = PeriodicWorker(
            "disk-holders", self._pass, MEASURE_EVERY_S, "what users hold cannot be measured", (*EXPECTED, DBAPIError)
        )

    def look(self) -> None:
        """Measure, and warn.

        Raises:
            DBAPIError: the store cannot be read.
        """
        self._books.look()
        warned: dict[str, str] = {}
        for info in self._loop.job_cache.newest_first():
            if info.attempt and (excess := self._books.excess(info.user, info.group)):
                who = excess.partition(" holds ")[0]
                warned[info.id] = who
                if self._warned.get(info.id) != who:
                    text = f"{excess}: no more jobs and datasets of theirs are taken on"
                    self._loop.notify([Noted(self._clock(), info.id, text)])
        self._warned = warned

    def _pass(self) -> float:
        begun = time.monotonic()
        self.look()
        return max(MEASURE_EVERY_S, (time.monotonic() - begun) / MEASURING_SHARE)
