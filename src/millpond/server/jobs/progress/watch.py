"""Measures how fast running work makes steps, and tells the core.

Each measurement is an event, and a cycle follows it. So little is told: of a run what has changed by a tenth, after
pauses that grow from one minute to ten, and begin at one again when it has other cards, or these another power cap;
that its cards hold a tenth more memory, after a minute; of all runs together at most ``MOST_AT_ONCE`` every ten
seconds.

Of runs that may have a cap (``Job.max_slowdown``) a speed is told after each pause, also one that stays, with what
their cards drew meanwhile; and of one with a cap, that nothing was measured there for ``UNMEASURED_S``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from millpond.model.events import ProgressMeasured
from millpond.model.states import JobState, TaskState
from millpond.node.host.clocks import WallClock
from millpond.node.host.periodic_worker import Periodic, PeriodicWorker
from millpond.node.task.records import TaskFiles, TaskId
from millpond.server.jobs.curves.growing_files import GrowingFile
from millpond.server.jobs.curves.reports import fresh_reports
from millpond.server.jobs.progress.meter import WINDOW_S, ProgressMeter
from millpond.server.monitoring.telemetry.sampling import Samples
from millpond.server.runtime.loop import Loop
from millpond.server.storage.files.outputs import Reported
from millpond.specs.api.jobs.jobs import JobInfo, TaskInfo

LOOK_EVERY_S: Final = 10.0
LEAST_CHANGE: Final = 0.1
FIRST_PAUSE_S: Final = 60.0
LONGEST_PAUSE_S: Final = 600.0
MOST_AT_ONCE: Final = 100
MOST_TASKS: Final = 64
"""The first tasks of a job, among which the first that reports is measured: mostly that is task 0."""
LAST_BYTES: Final = 64 * 2**10
"""Of what a task reported since the last look, so much is read: the highest step is near the end."""
UNMEASURED_S: Final = 300.0
READ_FOR_S: Final = 2.0
"""In one look; those that are not read by then come first in the next."""


@dataclass(frozen=True, slots=True)
class MeasuredCards:
    """What is known of the power and the memory of cards, by UUID.

    Attributes:
        cap_w: the power cap at which one is kept for its job; 0: at none.
        samples: what is remembered of it.
        pretended: cards that hold on paper what was granted, which says nothing of a program.
    """

    cap_w: Callable[[str], float]
    samples: Samples
    pretended: Collection[str] = ()

    def drawn_w(self, cards: Sequence[str], since: float) -> float | None:
        """What these cards together drew from then on, in the mean; None where any does not report it."""
        total = 0.0
        for card in cards:
            drawn = [each.sample.power_w for each in self.samples(card) if each.at > since]
            known = [power for power in drawn if power is not None]
            if not known:
                return None
            total += sum(known) / len(known)
        return total

    def most_used_mib(self, cards: Sequence[str], since: float) -> int | None:
        """The most memory that was in use on any of these cards from then on; None where any does not report it."""
        most = 0
        for card in cards:
            used = [each.sample.memory_used_mib for each in self.samples(card) if each.at > since]
            known = [mib for mib in used if mib is not None]
            if not known or card in self.pretended:
                return None
            most = max(most, *known)
        return most


class ProgressWatch(Periodic):
    """Looks at what running jobs report, on a thread of its own.

    Args:
        cards: what is known of them.
    """

    _first_after_s = LOOK_EVERY_S

    def __init__(self, loop: Loop, state_dir: Path, cards: MeasuredCards, clock: WallClock) -> None:
        self._loop = loop
        self._measured_cards = cards
        self._state_dir = state_dir
        self._clock = clock
        self._runs: dict[str, _MeasuredRun] = {}
        """By job, those looked at longest ago first."""
        self._worker = PeriodicWorker("progress", self.look, LOOK_EVERY_S, "the progress of jobs is not measured now")

    def look(self) -> None:
        """Look at each running job once."""
        jobs = {
            job.id: job
            for job in self._loop.job_cache.newest_first()
            if job.array is None and job.state in (JobState.RUNNING, JobState.SUSPENDED)
        }
        runs = {job: run for job, run in self._runs.items() if job in jobs and run.attempt == jobs[job].attempt}
        until, told = time.monotonic() + READ_FOR_S, list[ProgressMeasured]()
        trouble: Exception | None = None
        for name in [*runs, *(jobs.keys() - runs.keys())]:
            run = runs.pop(name, None) or _MeasuredRun(self._state_dir, jobs[name], self._measured_cards)
            runs[name] = run
            try:
                measured = run.look(jobs[name], self._clock())
            except Exception as error:  # no run keeps the others from being measured
                trouble, measured = trouble or error, None
            if measured is not None:
                told.append(measured)
            if len(told) == MOST_AT_ONCE or time.monotonic() > until:
                break
        self._runs = runs
        if told:
            self._loop.notify(told)
        if trouble is not None:
            raise trouble


class _MeasuredRun:
    """One run, with what was told of it last."""

    def __init__(self, state_dir: Path, job: JobInfo, cards: MeasuredCards) -> None:
        self.attempt = job.attempt
        self._measured_cards = cards
        self._caps: tuple[float, ...] = ()
        self._began_at = 0.0
        self._looked_at = 0.0
        self._memory_mib: int | None = None
        """The most that any of its cards was seen to hold since then."""
        self._told_memory_mib: int | None = None
        self._was_told = job.progress is not None
        """Before a restart of the server: then what its cards hold was told too."""
        self._state_dir = state_dir
        self._job = job.id
        self._files: dict[int, GrowingFile] = {}
        self._source: int | None = None
        """The task whose reports count."""
        self._meter = ProgressMeter()
        self._cards: tuple[object, ...] = ()
        self._shares_with = ""
        before = job.progress
        self._told = (None, "") if before is None else (before.steps_per_s, before.ignored)
        self._told_at = -FIRST_PAUSE_S if before is None else before.at
        self._pause_s = FIRST_PAUSE_S
        self._untold = ""
        """What was wrong with its reports since it was told last: it stays until that is told."""

    def look(self, job: JobInfo, now: float) -> ProgressMeasured | None:
        """Read what it reported since the last look; returns what is worth telling."""
        running = [task for task in job.tasks if task.state == TaskState.RUNNING]
        uuids = [grant.uuid for task in running for grant in task.devices]
        caps = tuple(map(self._measured_cards.cap_w, uuids)) if job.max_slowdown else ()
        cards = tuple((task.task, task.node, *(grant.uuid for grant in task.devices)) for task in running)
        if (cards, caps, job.shares_with) != (self._cards, self._caps, self._shares_with):
            if self._cards:
                self._told, self._pause_s, self._was_told = (None, ""), FIRST_PAUSE_S, False
            self._cards, self._source, self._meter = cards, None, ProgressMeter()
            self._shares_with = job.shares_with
            self._caps, self._began_at, self._looked_at = caps, now, now
            self._memory_mib, self._told_memory_mib = None, None
        self._meter.look(self._fresh(running), now)
        self._look_at_memory(uuids, now)
        self._untold = self._meter.ignored or self._untold
        measured = (None, self._untold) if self._untold else (self._meter.steps_per_s, "")
        if job.power_cap_w and measured == (None, "") and now - self._began_at > UNMEASURED_S:
            measured = (None, f"none was measured in {UNMEASURED_S:.0f} s at a power cap")
        is_worth_it = bool(job.max_slowdown and measured[0] is not None) or _differs(measured, self._told)
        holds_more = measured[0] is not None and _is_more(self._memory_mib, self._told_memory_mib)
        pause_s = FIRST_PAUSE_S if holds_more else self._pause_s
        if 0.0 <= now - self._told_at < pause_s or not (is_worth_it or holds_more):
            return None
        if self._told != (None, ""):
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        self._told, self._told_at, self._untold = measured, now, ""
        self._told_memory_mib = self._memory_mib
        gpu_milli = sum(grant.compute_milli for task in running for grant in task.devices)
        power_w = self._measured_cards.drawn_w(uuids, max(self._began_at, now - WINDOW_S)) if job.max_slowdown else None
        cap_w, memory_mib = min(caps, default=0.0), self._memory_mib
        rate, ignored = measured
        return ProgressMeasured(now, self._job, self.attempt, rate, gpu_milli, ignored, power_w, cap_w, memory_mib)

    def _look_at_memory(self, uuids: list[str], now: float) -> None:
        """How much its cards have held since the last look."""
        used_mib = self._measured_cards.most_used_mib(uuids, self._looked_at) if uuids else None
        self._looked_at = now
        if used_mib is None:
            return
        self._memory_mib = max(used_mib, self._memory_mib or 0)
        if self._was_told:
            self._told_memory_mib, self._was_told = self._memory_mib, False

    def _fresh(self, running: list[TaskInfo]) -> list[Reported]:
        """What the first task that reports has reported since the last look."""
        numbers = [task.task for task in running[:MOST_TASKS]] if self._source is None else [self._source]
        for number in numbers:
            file = self._files.get(number)
            if file is None:
                place = TaskFiles.of(self._state_dir, TaskId(self._job, self.attempt, number)).metrics
                file = self._files[number] = GrowingFile(place.parent, place.name)
            found = list(fresh_reports(file, last_bytes=LAST_BYTES))
            if found:
                self._source = number
                return found
        return []


def _is_more(held_mib: int | None, told_mib: int | None) -> bool:
    """Whether that is known now which was not known then, or is more than was told."""
    return held_mib is not None and (told_mib is None or held_mib > (1.0 + LEAST_CHANGE) * told_mib)


def _differs(measured: tuple[float | None, str], told: tuple[float | None, str]) -> bool:
    """Whether that is known now which was not known then, or is another speed."""
    (rate, ignored), (told_rate, _) = measured, told
    if rate is None:
        return bool(ignored) and measured != told
    return told_rate is None or abs(rate - told_rate) > LEAST_CHANGE * told_rate
