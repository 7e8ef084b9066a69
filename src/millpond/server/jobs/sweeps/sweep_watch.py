"""Looks at what the trials of all living sweeps report, and has those stopped that fell behind."""

from __future__ import annotations

import logging
from typing import Final

from sqlalchemy.exc import DBAPIError

from millpond.model.errors import MillpondError, NotFoundError
from millpond.model.events import StopRequested
from millpond.model.states import JobState
from millpond.node.host.periodic_worker import EXPECTED, Periodic, PeriodicWorker, for_each
from millpond.scheduling.records import JobRecord
from millpond.server.jobs.sweeps.trials import Trials
from millpond.server.runtime.inbox import ChangeJob
from millpond.server.runtime.loop import Loop

log = logging.getLogger(__name__)


LOOK_EVERY_S: Final = 1.0


WHO: Final = "the sweep"


class SweepWatch(Periodic):
    """Looks after sweeps, on a thread of its own."""

    _first_after_s = LOOK_EVERY_S

    def __init__(self, loop: Loop, trials: Trials) -> None:
        self._loop = loop
        self._trials = trials
        self._seen: set[str] = set()
        self._worker = PeriodicWorker(
            "sweeps", self.look, LOOK_EVERY_S, "the trials of sweeps cannot be read", (*EXPECTED, DBAPIError)
        )

    def look(self) -> None:
        """Look at each sweep once, a last time at those that have ended."""
        living = {
            info.id for info in self._loop.job_cache.newest_first() if info.array is not None and info.array.sweep
        }
        seen, self._seen = self._seen, living
        for_each(sorted(seen | living), lambda sweep: self._look_at(sweep, is_last=sweep not in living))

    def _look_at(self, sweep: str, *, is_last: bool) -> None:
        try:
            for trial, reason in self._trials.refresh(sweep).items():
                self._stop(trial, reason)
        except NotFoundError:  # deleted as soon as it had ended
            is_last = True
        finally:
            if is_last:
                self._trials.drop(sweep)

    def _stop(self, trial: str, reason: str) -> None:
        info = self._loop.job_cache.get(trial)
        if info is None or info.state == JobState.STOPPING:
            return

        def stop(_record: JobRecord, now: float) -> StopRequested:
            return StopRequested(now, trial, WHO, reason)

        try:
            self._loop.wait_for(self._loop.change_job(ChangeJob(trial, stop, pruned=reason)))
        except MillpondError as error:
            log.info("%s goes on: %s", trial, error)  # it ended meanwhile
