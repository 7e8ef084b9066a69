"""The curves of one run: all that its tasks reported or wrote as TensorBoard files, in all of its attempts."""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from millpond.model.errors import ConflictError
from millpond.node.host.folder_trees import entries_below
from millpond.node.task.records import TaskFiles, TaskId, attempt_dir
from millpond.server.jobs.curves.curve import Curve
from millpond.server.jobs.curves.event_files import EventFile
from millpond.server.jobs.curves.growing_files import GrowingFile
from millpond.server.jobs.curves.reports import fresh_reports
from millpond.server.jobs.sweeps.readings import TrialReading
from millpond.server.storage.files.outputs import metric_name, own_output, regular_files
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.job.sweeps import SweepMetric

MOST_CURVES: Final = 200
"""Of one run; further names are left out, and that is said."""
MOST_TASKS: Final = 64
"""The first tasks of a job are read; mostly the first alone reports."""
MOST_ATTEMPTS: Final = 50
"""The latest ones."""
MOST_EVENT_FILES: Final = 100
MOST_ENTRIES: Final = 20_000
"""Names in an output folder among which event files are looked for."""
_OF_A_CURVE: Final = 50
"""Points that take as much memory as a curve without any."""
LOOK_EVERY_S: Final = 10.0
"""For new event files."""


class CurveKey(NamedTuple):
    """Which curve of a run it is; ``folder`` is that of the event file in the output, empty for what was reported."""

    task: int
    folder: str
    metric: str


class RunCurves:
    """The curves of one job, each byte of its files read once.

    Attributes:
        curves: by what they are.
        notes: what could not be read, for people.
    """

    def __init__(self, state_dir: Path, job: str, printed: SweepMetric | None = None) -> None:
        self._state_dir = state_dir
        self._job = job
        self._printed = printed
        self._attempts: dict[int, _AttemptFiles] = {}
        self.curves: dict[CurveKey, Curve] = {}
        self._attempt_of: dict[CurveKey, int] = {}
        self.notes: list[str] = []

    @property
    def size(self) -> int:
        """Points in memory; what each curve takes besides, though it may have none, is worth some more."""
        return sum(_OF_A_CURVE + len(curve.points) for curve in self.curves.values())

    def refresh(self, info: JobInfo, until: float = math.inf) -> bool:
        """Read what came since the last time; returns whether all of it is read.

        Args:
            until: an instant of ``time.monotonic`` at which to stop.
        """
        is_cut = False
        for attempt in range(max(1, info.attempt - MOST_ATTEMPTS + 1), max(info.attempt, 1) + 1):
            files = self._attempts.get(attempt)
            if files is None:
                files = self._attempts[attempt] = _AttemptFiles(self._state_dir, self._job, attempt)
            if files.is_over:
                continue
            for key, step, value, at in files.fresh(info, until):
                curve = self._curve(key, attempt, step)
                is_cut = is_cut or curve is None
                if curve is not None:
                    curve.add(step, value, at)
            if time.monotonic() > until:
                return False
            files.is_over = attempt < info.attempt or (info.ended_at is not None and files.was_ended)
            files.was_ended = info.ended_at is not None
        if not self.curves and self._printed is not None:
            self._read_printed(info, self._printed)
        notes = [f"{path}: {why}" for files in self._attempts.values() for path, why in files.troubles()]
        notes += [files.hidden for files in self._attempts.values() if files.hidden][-1:]
        if is_cut:
            notes.append(f"only the first {MOST_CURVES} curves are read")
        self.notes = notes[:10]
        return True

    def _curve(self, key: CurveKey, attempt: int, step: float | None) -> Curve | None:
        curve = self.curves.get(key)
        if curve is None:
            if len(self.curves) >= MOST_CURVES:
                return None
            curve = self.curves[key] = Curve()
        before = self._attempt_of.get(key, attempt)
        self._attempt_of[key] = attempt
        if attempt > before:
            curve.rewind(0.0 if step is None else step)
        return curve

    def _read_printed(self, info: JobInfo, metric: SweepMetric) -> None:
        """Of a trial that reports nothing, what its output says of the metric of its sweep."""
        reading = TrialReading.of(self._state_dir, self._job, max(info.attempt, 1), metric)
        curve = Curve()
        for _, point in reading.printed():
            curve.add(point.step, point.value, 0.0)
        if curve.count:
            self.curves[CurveKey(0, "", metric.name)] = curve


class _AttemptFiles:
    """The files of one attempt.

    Attributes:
        is_over: nothing comes any more.
        was_ended: its job had ended when they were read last.
        hidden: why its output is not looked into; empty while it is.
    """

    def __init__(self, state_dir: Path, job: str, attempt: int) -> None:
        self._state_dir = state_dir
        self._job = job
        self._attempt = attempt
        self._reports: dict[int, GrowingFile] = {}
        self._events: dict[str, EventFile] = {}
        self._looked_at = -LOOK_EVERY_S
        self.is_over = False
        self.was_ended = False
        self.hidden = ""

    def fresh(self, info: JobInfo, until: float) -> Iterator[tuple[CurveKey, float | None, float | None, float]]:
        """Curve, step, value and instant of what came since the last time, or of as much as is read by an instant."""
        for task in range(min(len(info.tasks), MOST_TASKS)):
            place = TaskFiles.of(self._state_dir, TaskId(self._job, self._attempt, task)).metrics
            file = self._reports.setdefault(task, GrowingFile(place.parent, place.name))
            for report in fresh_reports(file, until):
                for name, value in report.values.items():
                    yield CurveKey(task, "", metric_name(name)), report.step, value, report.at
        self._find_event_files()
        for path, events in self._events.items():
            folder = path.rpartition("/")[0] or "."
            for scalar in events.fresh(until):
                yield CurveKey(0, folder, metric_name(scalar.tag)), float(scalar.step), scalar.value, scalar.at

    def troubles(self) -> Iterator[tuple[str, str]]:
        """Event files that are damaged, and where."""
        return ((path, events.trouble) for path, events in self._events.items() if events.trouble)

    def _find_event_files(self) -> None:
        now = time.monotonic()
        if now - self._looked_at < LOOK_EVERY_S and not self.was_ended:
            return
        self._looked_at = now
        try:
            folder = own_output(attempt_dir(self._state_dir, self._job, self._attempt))
        except ConflictError as error:
            self.hidden = f"event files there are not read: {error.cause}"
            return
        files = regular_files(itertools.islice(entries_below(folder), MOST_ENTRIES))
        for path in heapq.nsmallest(MOST_EVENT_FILES, (path for path, _ in files if "tfevents" in path)):
            if path not in self._events and len(self._events) < MOST_EVENT_FILES:
                self._events[path] = EventFile(folder, path)
