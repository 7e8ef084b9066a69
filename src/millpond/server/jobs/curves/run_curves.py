"""The curves of one run: all that its tasks reported or wrote as TensorBoard files, in all of its attempts.

Of a long one the lowest and highest of each stretch are kept: peaks and dips stay, which a mean would hide. How many
points there were is never forgotten, so what is shown of them can always be declared.
"""

from __future__ import annotations

import heapq
import itertools
import math
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from millpond.model.errors import ConflictError
from millpond.node.host.folder_trees import entries_below
from millpond.node.task.records import TaskFiles, TaskId, attempt_dir
from millpond.server.jobs.curves.event_files import EventFile
from millpond.server.jobs.curves.reports import GrowingFile, fresh_reports
from millpond.server.jobs.sweeps.readings import TrialReading
from millpond.server.storage.files.outputs import metric_name, own_output, regular_files
from millpond.specs.api.base import LATEST
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
LARGEST: Final = 1e100
"""Numbers beyond are no measurements; their differences and squares would be none."""
KEPT: Final = 8_192
"""Points of one curve; twice as many are thinned to that."""


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


@dataclass(slots=True)
class CurvePoints:
    """Points in the order of their steps; ``at`` is in seconds since 1970."""

    steps: array[float] = field(default_factory=lambda: array("d"))
    values: array[float] = field(default_factory=lambda: array("d"))
    at: array[float] = field(default_factory=lambda: array("d"))

    def __len__(self) -> int:
        return len(self.steps)

    def picked(self, indices: list[int]) -> CurvePoints:
        """Those at these places."""
        return CurvePoints(*(array("d", [column[index] for index in indices]) for column in self._columns()))

    def part(self, first: int, last: int) -> CurvePoints:
        """Those from one place up to, and without, another."""
        return CurvePoints(*(column[first:last] for column in self._columns()))

    def _columns(self) -> tuple[array[float], array[float], array[float]]:
        return self.steps, self.values, self.at


@dataclass(slots=True)
class Curve:
    """A metric of one run.

    Attributes:
        count: finite values that were ever reported and still count.
        not_finite: values that were none, such as NaN, or beyond ``LARGEST``.
    """

    points: CurvePoints = field(default_factory=CurvePoints)
    count: int = 0
    not_finite: int = 0
    _is_ordered: bool = True

    def add(self, step: float | None, value: float | None, at: float) -> None:
        """The next value; without a step, values are counted."""
        if value is None or not -LARGEST <= value <= LARGEST:
            self.not_finite += 1
            return
        self.count += 1
        points = self.points
        place = float(self.count) if step is None or not -LARGEST <= step <= LARGEST else step
        if points.steps and place < points.steps[-1]:
            self._is_ordered = False
        points.steps.append(place)
        points.values.append(value)
        points.at.append(at if 0 <= at <= LATEST else 0.0)
        if len(points) >= 2 * KEPT:
            self.points = thinned(self.ordered(), KEPT)

    def rewind(self, step: float) -> None:
        """A new attempt goes on from here: what was reported at this step or later counts no more."""
        points = self.ordered()
        kept = [index for index, place in enumerate(points.steps) if place < step]
        self.count = round(self.count * len(kept) / max(len(points), 1))
        self.points = points.picked(kept)

    def ordered(self) -> CurvePoints:
        """What is kept, by step."""
        if not self._is_ordered:
            places = sorted(range(len(self.points)), key=self.points.steps.__getitem__)
            self.points = self.points.picked(places)
            self._is_ordered = True
        return self.points


def thinned(points: CurvePoints, most: int) -> CurvePoints:
    """At most so many of the points: the lowest and the highest of each stretch, and both ends.

    Args:
        most: at least 4.
    """
    count = len(points)
    if count <= most:
        return points
    stretches = (most - 2) // 2
    kept = {0, count - 1}
    for number in range(stretches):
        begin, end = count * number // stretches, count * (number + 1) // stretches
        part = points.values[begin:end]
        kept.add(begin + part.index(min(part)))
        kept.add(begin + part.index(max(part)))
    return points.picked(sorted(kept))
