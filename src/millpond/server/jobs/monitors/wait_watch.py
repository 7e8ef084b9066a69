"""Record why jobs wait: when the reason of a job changes, it is noted in the log with the estimate of that moment.

Jobs that have waited for a minute are checked in turn, a few at a time. Only another cause counts as another reason, as
numbers change all the time. So the log grows only by changes of jobs that wait long.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import Final

from millpond.model.events import WaitExplained
from millpond.model.reasons import Cause, Reason
from millpond.model.states import JobState
from millpond.node.host.clocks import WallClock
from millpond.node.host.periodic_worker import Periodic, PeriodicWorker, for_each
from millpond.server.runtime.core import Core
from millpond.server.runtime.loop import Loop
from millpond.server.store.histories import HistoryStore
from millpond.server.views.reasons import summary_of

LOOK_EVERY_S: Final = 15.0
LEAST_WAIT_S: Final = 60.0
"""Nothing is kept of shorter waits."""
MOST_AT_ONCE: Final = 40
"""So many jobs are looked at in one look; each is a question to the scheduler's thread of its own."""
LOOK_FOR_S: Final = 1.0
"""After so long a look goes no further: an estimate takes the scheduler's thread tens of milliseconds, and more where
the machine is busy. Who is left comes first at the next look."""
ANOTHER_JOB: Final = "another job"


class WaitWatch(Periodic):
    """Notes why jobs wait, on a thread of its own."""

    def __init__(self, loop: Loop, histories: HistoryStore, clock: WallClock) -> None:
        self._loop = loop
        self._histories = histories
        self._clock = clock
        self._known: dict[str, Cause | None] = {}
        """By job, those looked at longest ago first."""
        self._worker = PeriodicWorker("waits", self.look, LOOK_EVERY_S, "why jobs wait is not kept now")

    def look(self) -> None:
        """Look at the jobs whose last look is longest ago."""
        # Jobs wait by the scheduler's time, which is ahead of a clock that was set back.
        until, now = time.monotonic() + LOOK_FOR_S, max(self._clock(), self._loop.now)
        waiting = [
            info.id
            for info in self._loop.job_cache.newest_first()
            if info.state == JobState.QUEUED and info.array is None and info.eligible_at is not None
            if info.eligible_at <= now - LEAST_WAIT_S
        ]
        left = set(waiting)
        known = {job: cause for job, cause in self._known.items() if job in left}
        unseen = [job for job in reversed(waiting) if job not in known]
        chosen = [*unseen, *known][:MOST_AT_ONCE]
        noted: list[WaitExplained] = []
        self._known = {job: known[job] for job in known if job not in chosen}
        try:
            for_each(
                takewhile(lambda _: time.monotonic() < until, chosen),
                lambda job: noted.extend(self._look_at(job, known, now)),
            )
        finally:
            if noted:
                self._loop.notify(noted)

    def _look_at(self, job: str, known: Mapping[str, Cause | None], now: float) -> Iterator[WaitExplained]:
        """Why a job waits, where that is news; it counts as looked at also where that fails."""
        before = self._known[job] = known[job] if job in known else self._stored(job)
        found = self._loop.look_up(partial(_explained, job=job, before=before), is_long=True)
        if found is not None:
            self._known[job] = found.cause
            yield _note(job, found, now)

    def _stored(self, job: str) -> Cause | None:
        """The last cause that the log has, from before this server began."""
        last = self._histories.last_wait(job)
        return None if last is None else last.cause


def _explained(core: Core, job: str, before: Cause | None) -> Reason | None:
    """Why a job waits, where that is for another cause than before."""
    record = core.scheduler.jobs.get(job)
    if record is None or record.state is not JobState.QUEUED:
        return None
    reason = core.scheduler.cause(job, core.now)
    if reason.cause is before:
        return None
    found = core.scheduler.explain(job, core.now, within_s=LOOK_EVERY_S)
    is_job = found.blocked_by in core.scheduler.jobs  # queues and nodes are in the way too, and everyone knows them
    return found if is_job else replace(found, blocked_by="")


def _note(job: str, reason: Reason, now: float) -> WaitExplained:
    other, summary = reason.blocked_by, summary_of(reason)
    if other:
        summary = summary.replace(other, ANOTHER_JOB)
    start = reason.start
    if start is None or start.unknown:
        return WaitExplained(now, job, reason.cause, summary)
    return WaitExplained(now, job, reason.cause, summary, start.earliest_at, start.likely_at, start.latest_at)
