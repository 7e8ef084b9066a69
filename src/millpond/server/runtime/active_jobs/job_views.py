"""The views of jobs, kept in step with the core; jobs that have ended, and what was used, until that is stored.

For the scheduler's thread alone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace

from millpond.model.confinement import UNTOLD, Confinement, loosest
from millpond.model.engine import Observed
from millpond.model.events import ClockJumped, Confirmed
from millpond.model.states import JobState
from millpond.server.runtime.active_jobs.arrays import Arrays
from millpond.server.runtime.active_jobs.dependencies import Dependent
from millpond.server.runtime.active_jobs.job_cache import JobCache, cancelled_view, job_view, view_before_start
from millpond.server.runtime.core import Core
from millpond.server.runtime.usage import UsageMeter
from millpond.server.store.job_rows import damaged_view
from millpond.server.store.jobs import NewJob
from millpond.server.store.statistics.books import UsageChange
from millpond.specs.api.jobs.jobs import JobInfo

log = logging.getLogger(__name__)


class JobViews:
    """Makes the views of jobs as the core knows them, and puts them into the job cache.

    Attributes:
        ended: last views that are not stored yet, by id.
        used: intervals of use that are not stored yet.
        kept: views of jobs that have failed and whose place is kept from now on, until the notice of that is stored.
    """

    def __init__(self, core: Core, job_cache: JobCache, arrays: Arrays, meter: UsageMeter) -> None:
        self._core = core
        self._job_cache = job_cache
        self._arrays = arrays
        self._meter = meter
        self._confinements: dict[str, Confinement] = {}
        self._submitted: dict[str, float] = {}
        """When jobs were submitted that the core was told of later."""
        self.ended: dict[str, JobInfo] = {}
        self.used: list[UsageChange] = []
        self.kept: list[JobInfo] = []

    def begin(
        self, tasks: Iterable[Observed], waiting: Iterable[Dependent], submitted: Mapping[str, float], now: float
    ) -> None:
        """Make all views, after a start.

        Args:
            tasks: what runs, as the engine found it.
            waiting: jobs that wait for others, which the core does not know.
            submitted: when the jobs that have not ended were submitted.
        """
        known = self._core.scheduler.jobs
        self._submitted = {job: at for job, at in submitted.items() if job in known and at < known[job].submitted_at}
        self.used += [self._meter.gone(job, now) for job in self._meter.jobs if job not in known]
        by_job: dict[str, list[Confinement]] = {}
        for seen in tasks:
            by_job.setdefault(seen.job, []).append(seen.confinement)
        self._confinements = {job: loosest(of) for job, of in by_job.items()}
        self.update(set(known), now)
        for dependent in waiting:
            self.hold(dependent)

    def skip(self, event: ClockJumped) -> set[str]:
        """Do not count what jobs hold for the time that a clock set forward skipped; returns those jobs."""
        holders = self._meter.jobs
        for name in holders:
            self.used += self._meter.skip(self._core.scheduler.jobs[name], event.at - event.seconds, event.at)
        return set(holders)

    def confirmed(self, job: str, event: Confirmed) -> None:
        """The engine said how a job is kept apart from others."""
        if event.confinement != UNTOLD:
            self._confinements[job] = event.confinement

    def update(self, jobs: set[str], now: float) -> None:
        """Make new views of those of the jobs that the core knows, and of the arrays whose members changed."""
        known = self._core.scheduler.jobs
        records = [known[name] for name in jobs | self._sharers(jobs) if name in known]
        for record in sorted(records, key=lambda record: record.sequence):
            confinement = self._confinements.get(record.id, UNTOLD)
            before = self._job_cache.get(record.id)
            submitted_at = self._submitted_at(record.id)
            info = job_view(record, self._core.devices, self._core.clusters, confinement, submitted_at)
            if info.parent and record.state is JobState.CANCELLED:
                info = replace(info, stopped_early=self._arrays.why_pruned(info.id))
            if info.is_kept and before is not None and not before.is_kept:
                self.kept.append(info)
            self._job_cache.put(info)
            change = self._meter.look(record, self._core.devices, self._core.now)
            if change is not None:
                self.used.append(change)
            if info.parent:
                self._arrays.look(info)
            if record.state.ended:
                self.ended[record.id] = info
        for info in self._arrays.changed_views(now):
            self._job_cache.put(info)
            if info.ended_at is not None:
                self.ended[info.id] = info

    def _submitted_at(self, job: str) -> float | None:
        """When a job was submitted, or the array that it is a member of; None: when the core was told of it."""
        array = self._arrays.of(job)
        return self._submitted.get(job) if array is None else array.submitted_at

    def _sharers(self, jobs: set[str]) -> set[str]:
        """Jobs that share cards with any of these, or did by their latest views."""
        known = self._core.scheduler.jobs
        now = {known[name].packed_with for name in jobs if name in known}
        before = {view.shares_with for name in jobs if (view := self._job_cache.get(name)) is not None}
        return now | before

    def hold(self, dependent: Dependent) -> None:
        """Make the view of a job or an array that waits for others."""
        self._submitted[dependent.job.id] = dependent.submitted_at
        self._job_cache.put(self._before(dependent))

    def cancel(self, dependent: Dependent, account: str, now: float) -> JobInfo:
        """A job or an array that waited for others will never start; returns its last view."""
        info = cancelled_view(self._before(dependent), now, account)
        self._arrays.drop(info.id)
        self._job_cache.put(info)
        self.ended[info.id] = info
        return info

    def give_up(self, row: NewJob, now: float) -> None:
        """The stored file of a job, or an array, that waited for others is damaged: it never starts."""
        info = damaged_view(
            id=row.id,
            user=row.user,
            group=row.group,
            submitted_at=row.submitted_at,
            ended_at=now,
            state=JobState.FAILED.value,
            reason="its stored file is damaged; submit it again",
        )
        log.error("job %s: %s", info.id, info.reason)
        self._job_cache.put(info)
        self.ended[info.id] = info

    def forget(self, view: JobInfo) -> None:
        """A job has ended, and that is stored."""
        if view.array is None:
            self._core.forget(view.id)
        self._arrays.drop(view.id)
        self._job_cache.drop(view.id)
        self._confinements.pop(view.id, None)
        self._submitted.pop(view.id, None)

    def stored(self) -> list[JobInfo]:
        """What has ended and was used is stored; returns the last views."""
        views = list(self.ended.values())
        self.ended, self.used, self.kept = {}, [], []
        return views

    def _before(self, dependent: Dependent) -> JobInfo:
        job = dependent.job
        return self._arrays[job.id].view() if job.id in self._arrays else view_before_start(job, dependent.submitted_at)
