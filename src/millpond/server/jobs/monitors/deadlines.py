"""Deadlines of jobs: refused where they cannot be kept, foreseen while a job lives, noted when they are missed.

A job is refused only when it could not end in time on an empty cluster; whatever else stands against it is told.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from millpond.forecasting.durations import Forecast
from millpond.model import windows
from millpond.model.errors import InvalidInputError
from millpond.model.events import Noted
from millpond.model.states import JobState
from millpond.model.workloads import Job
from millpond.node.host.clocks import WallClock
from millpond.node.host.periodic_worker import Periodic, PeriodicWorker
from millpond.scheduling.ordering.forecasts import TRUSTED_SPREAD
from millpond.server.runtime.core import Core
from millpond.server.runtime.loop import Loop
from millpond.server.views.reasons import deadline_info
from millpond.server.wording import local_time, rounded_span
from millpond.specs.api.jobs.jobs import JobInfo

LOOK_EVERY_S: Final = 5.0
ESTIMATES_WITHIN_S: Final = 5.0
"""So old an estimate may be where very many jobs wait."""


def check_deadline(job: Job, forecast: Forecast | None, now: float) -> None:
    """Refuse a job that could not end by its deadline if the cluster were empty.

    Raises:
        InvalidInputError: its windows open too late, or it is expected to run longer than the time that is left.
    """
    if job.deadline_s is None:
        return
    start = windows.opens_at(job.windows, now) if job.windows else now
    if start >= job.deadline_s:
        raise InvalidInputError(
            f"its window opens {local_time(start)}, and its deadline is {local_time(job.deadline_s)}",
            "choose a later deadline or another window",
        )
    if forecast is None or forecast.cautious_s > TRUSTED_SPREAD * forecast.expected_s:
        return
    if start + forecast.expected_s > job.deadline_s:
        needed, left = rounded_span(forecast.expected_s), rounded_span(job.deadline_s - start)
        raise InvalidInputError(
            f"it should run for {needed}, as its like did, and its deadline leaves {left}",
            "choose a later deadline, or leave it out",
        )


def foreseen(core: Core, info: JobInfo) -> JobInfo:
    """A job with the outlook for its deadline, if the core knows it; for the scheduler's thread."""
    if info.deadline is None or info.id not in core.scheduler.jobs:
        return info
    outlook = core.scheduler.deadline_outlook(info.id, core.now, within_s=ESTIMATES_WITHIN_S)
    return info if outlook is None else replace(info, deadline=deadline_info(outlook))


class DeadlineWatch(Periodic):
    """Notes in the history of a job that its deadline has passed, on a thread of its own."""

    def __init__(self, loop: Loop, clock: WallClock) -> None:
        self._loop = loop
        self._clock = clock
        self._since = clock()
        self._worker = PeriodicWorker("deadlines", self.look, LOOK_EVERY_S, "missed deadlines are not noted now")

    def look(self) -> None:
        """Note each deadline that has passed since the last look."""
        now, since = self._clock(), self._since
        self._since = now
        for info in self._loop.job_cache.newest_first():
            if info.deadline is not None and since < info.deadline.at <= now and not JobState(info.state).ended:
                text = f"its deadline, {local_time(info.deadline.at)}, has passed, and it has not ended"
                self._loop.notify([Noted(now, info.id, text)])
