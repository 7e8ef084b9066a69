"""What a server forgets in time: records and output of jobs that ended long ago, and the oldest output when there is
too much of it.

A thread of its own looks every hour. Folders go at once. Rows go in small transactions, so that the
scheduler's thread, which writes too, never waits long; and only what no restart would replay any more. A job whose
folder cannot be removed is kept, as nothing would name that folder otherwise, and keeps no other one.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sqlalchemy.exc import DBAPIError

from millpond.model.units import DAY_S
from millpond.node.host.clocks import WallClock
from millpond.node.host.files import read_json, write_json
from millpond.node.host.folder_trees import remove_tree
from millpond.node.host.periodic_worker import EXPECTED, Periodic, PeriodicWorker
from millpond.node.task.records import job_dir, note_of_removal
from millpond.server.storage.disk_use import size_of
from millpond.server.store.store import Store

log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 3_600.0
AT_ONCE: Final = 200
"""Jobs that are removed in one transaction."""
PAUSE_S: Final = 0.05
"""Between two transactions."""
_GIB: Final = 2**30
_LOOKED: Final = "retention.json"
"""When jobs were last looked at, and when the clock last leapt, in the state directory."""


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """What is kept; None is everything.

    Attributes:
        job_days: jobs that ended longer ago are forgotten, with all they wrote.
        log_gib: the folders of all jobs together; the output of those that ended first goes first.
    """

    job_days: float | None = None
    log_gib: float | None = None

    @property
    def any(self) -> bool:
        """Whether there is anything to do at all."""
        return self.job_days is not None or self.log_gib is not None


class RetentionWorker(Periodic):
    """Keeps a state directory within limits."""

    def __init__(self, store: Store, state_dir: Path, limits: RetentionLimits, clock: WallClock) -> None:
        self._store = store
        self._state_dir = state_dir
        self._limits = limits
        self._clock = clock
        self._trouble: OSError | None = None
        self._worker = PeriodicWorker(
            "retention",
            self._pass,
            LOOK_EVERY_S,
            "what is too old cannot be removed; the next try is in an hour",
            (*EXPECTED, DBAPIError),
        )

    def start(self) -> None:
        """Look now and then, when there are limits."""
        if self._limits.any:
            self._worker.start()

    def look(self) -> tuple[int, int]:
        """Look once; returns how many jobs were forgotten, and of how many more only the output was removed.

        Raises:
            DBAPIError: the store cannot be read or written.
            OSError: the folder of a job cannot be removed; what can be is gone.
        """
        self._trouble = None
        now, forgotten = self._clock(), 0
        if self._limits.job_days is not None and self._is_believed(now):
            forgotten = self._forget(now - self._limits.job_days * DAY_S)
        removed = 0 if self._limits.log_gib is None else self._shrink(int(self._limits.log_gib * _GIB))
        if forgotten or removed:
            log.info("forgot %d jobs that ended long ago, removed the output of %d more", forgotten, removed)
        if self._trouble is not None:
            raise self._trouble
        return forgotten, removed

    def _is_believed(self, now: float) -> bool:
        """Whether the clock has gone on for a day without a leap of more than a day.

        One that was set forward by mistake would make all jobs old, and what is removed does not come back with the
        right time. The leap may also be that the server did not run: waiting a day costs nothing.
        """
        path = self._state_dir / _LOOKED
        kept = read_json(path) or {}
        looked_at, leapt_at = (kept.get(name, now) for name in ("looked_at", "leapt_at"))
        if now - looked_at > DAY_S:
            log.warning(
                "the clock is %.1f days ahead of the last look for old jobs; none is forgotten for a day: "
                "correct the clock if it is wrong",
                (now - looked_at) / DAY_S,
            )
            leapt_at = now
        elif not kept or now < leapt_at:  # it was set back
            leapt_at = now - DAY_S
        with suppress(OSError):  # a full disk must not keep old jobs
            write_json(path, {"looked_at": now, "leapt_at": leapt_at})
        return bool(now - leapt_at >= DAY_S)

    def _forget(self, before: float) -> int:
        """Folders first: what is left of a job that was forgotten by halves is found again the next time.

        All that may go is looked for at once, as that reads the whole table, and again for arrays whose members went.
        """
        forgotten, kept = 0, set[str]()
        while jobs := [job for job in self._store.deletion.forgettable(before) if job not in kept]:
            for begin in range(0, len(jobs), AT_ONCE):
                if self._worker.closing:
                    return forgotten
                some = jobs[begin : begin + AT_ONCE]
                gone = [job for job in some if self._remove(job)]
                self._store.deletion.forget(gone)
                forgotten += len(gone)
                kept |= set(some).difference(gone)
                time.sleep(PAUSE_S)
        return forgotten

    def _shrink(self, most_bytes: int) -> int:
        """Remove folders of ended jobs, those that ended first before the others, until the rest is small enough."""
        sizes = {path.name: size_of(path) for path in (self._state_dir / "jobs").glob("*")}
        too_much = sum(sizes.values()) - most_bytes
        removed = 0
        if too_much <= 0:
            return 0
        for job in self._store.deletion.ended_first():
            size = sizes.get(job_dir(self._state_dir, job).name)
            if too_much <= 0 or self._worker.closing:
                break
            if size and self._remove(job):
                note_of_removal(self._state_dir, job).parent.mkdir(exist_ok=True, mode=0o700)
                note_of_removal(self._state_dir, job).touch()
                too_much -= size
                removed += 1
        return removed

    def _remove(self, job: str) -> bool:
        """Whether nothing is left of the folder of a job."""
        try:
            remove_folder(self._state_dir, job)
        except OSError as error:
            self._trouble = self._trouble or error
            return False
        return True

    def _pass(self) -> None:
        self.look()


def remove_folder(state_dir: Path, job: str) -> None:
    """Remove all that a job wrote, and its records.

    Raises:
        OSError: something of it cannot be removed; names its folder.
    """
    folder = job_dir(state_dir, job)
    if folder.is_dir():  # else it never started
        try:
            remove_tree(folder)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(folder)) from error
