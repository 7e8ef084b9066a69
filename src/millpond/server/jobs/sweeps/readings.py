"""What a trial says of its metric, read as it comes: reports of ``millpond.job.report``, else printed lines.

What is looked for in printed lines is text with a place for a number, not a regular expression: a user's pattern would
run in the server that all use.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from millpond.node.task.output import LogIndex
from millpond.node.task.records import TaskFiles, TaskId
from millpond.server.storage.files.outputs import open_below, points_of
from millpond.specs.api.jobs.files import MetricPoint, MetricSeries
from millpond.specs.job.sweeps import NUMBER, SweepMetric

MOST_AT_ONCE: Final = 4 * 2**20
"""Bytes of one file that are read in one look; of what is more than that behind, the end."""
MOST_LINES: Final = 20_000
"""Of one file in one look; of more, the last."""
LONGEST_LINE: Final = 2_000
"""Characters of a line that are looked at."""
MOST_PLACES: Final = 20
"""In one line, at which the text before the number is found."""
_US: Final = 1_000_000
_BLANKS: Final = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Point:
    """The metric at a step; ``value`` is None when it was not finite."""

    step: float
    value: float | None


class TrialReading:
    """One trial's reports in one attempt, those of its first task.

    Args:
        files: where the task leaves them.
    """

    def __init__(self, files: TaskFiles, metric: SweepMetric) -> None:
        self._metric = metric
        self._reports = _Lines(files.metrics)
        self._printed = _Lines(files.log)
        self._value = _Wanted.of(metric.printed, "{value}", metric.name)
        self._step = _Wanted.of(metric.printed_step, "{step}", "step")
        self._reported = False
        self._count = 0

    @staticmethod
    def of(state_dir: Path, job: str, attempt: int, metric: SweepMetric) -> TrialReading:
        """That of a job's attempt."""
        return TrialReading(TaskFiles.of(state_dir, TaskId(job, attempt, 0)), metric)

    def fresh(self, *, over: bool) -> list[Point]:
        """What came since the last time. As soon as anything is reported, printed lines no longer count.

        Args:
            over: the task writes no more, so that a last line without an end counts too.
        """
        points = [point for line in self._reports.fresh(over) for point in self._in_report(line)]
        self._reported |= bool(points)
        if self._reported:
            return points
        return [point for line in self._printed.fresh(over) if (point := self._in_line(line)) is not None]

    def printed(self) -> list[tuple[int, Point]]:
        """All that is printed by now, each with where in the log its line begins."""
        found = []
        lines = self._printed.fresh(over=False)
        offset = self._printed.offset - sum(len(line) + 1 for line in lines)
        for line in lines:
            point = self._in_line(line)
            if point is not None:
                found.append((offset, point))
            offset += len(line) + 1
        return found

    def _in_report(self, line: bytes) -> list[Point]:
        found = [point for name, point in points_of(line) if name == self._metric.name]
        return [Point(self._next_step(point.step), point.value) for point in found]

    def _in_line(self, line: bytes) -> Point | None:
        text = f" {' '.join(line[:LONGEST_LINE].decode(errors='replace').split())} "
        number = self._value.in_line(text)
        if number is None:
            return None
        step = self._next_step(self._step.in_line(text))
        return Point(step, number if math.isfinite(number) else None)

    def _next_step(self, given: float | None) -> float:
        """The step that was reported, or how many values came so far."""
        self._count += 1
        return given if given is not None and math.isfinite(given) else float(self._count)


class _Lines:
    """The lines of a file that grows, each once; a line that is not whole yet is left for later.

    Attributes:
        offset: where the next begins.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.offset = 0

    def fresh(self, over: bool) -> list[bytes]:
        opened = open_below(self._path.parent, self._path.name)
        if opened is None:
            return []
        with opened.file as file:
            skipped = opened.size - self.offset > MOST_AT_ONCE
            if skipped:
                self.offset = opened.size - MOST_AT_ONCE
            file.seek(self.offset)
            data = file.read(MOST_AT_ONCE)
        whole = data if over else data[: data.rfind(b"\n") + 1]
        self.offset += len(whole)
        lines = whole.split(b"\n")
        return lines[1 if skipped else 0 : None if over else -1][-MOST_LINES:]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """How a line gives a number: the text before it, and the number with what follows.

    The text is looked for as text; what follows never gives back what it has taken. So a line takes no longer than it
    is long, whatever stands in it.
    """

    before: str
    rest: re.Pattern[str]
    is_word: bool = False

    @staticmethod
    def of(laid_down: str | None, place: str, name: str) -> _Wanted:
        """As it was laid down, or the name, then ``=`` or ``:``."""
        if laid_down is None:
            return _Wanted(name, re.compile(rf"\s?+[=:]\s?+({NUMBER})"), is_word=True)
        before, _, after = (_BLANKS.sub(" ", part) for part in laid_down.partition(place))
        dot = "" if after.startswith(".") else r"\.?+"  # as numpy writes whole numbers
        return _Wanted(before, re.compile(f"({NUMBER}){dot}{re.escape(after)}"))

    def in_line(self, text: str) -> float | None:
        """The number that a line gives; None: none.

        Args:
            text: with single blanks, one of them at each end.
        """
        at = -1
        for _ in range(MOST_PLACES):
            at = text.find(self.before, at + 1)
            if at < 0:
                return None
            is_whole = not self.is_word or not (text[at - 1] in "._" or text[at - 1].isalnum())
            found = self.rest.match(text, at + len(self.before)) if is_whole else None
            if found is not None:
                return float(found[1])
        return None


def printed_series(state_dir: Path, run: TaskId, metric: SweepMetric, last: int) -> tuple[MetricSeries | None, bool]:
    """What the output of a trial's first task reports of its metric, None where that is nothing, and whether older
    points are left out.

    Args:
        last: how many of the newest points.
    """
    files = TaskFiles.of(state_dir, run)
    found = TrialReading(files, metric).printed()
    if not found:
        return None, False
    times = _times(files, [offset for offset, _ in found[-last:]])
    points = [
        MetricPoint(at=at, value=point.value, step=point.step)
        for at, (_, point) in zip(times, found[-last:], strict=True)
    ]
    cut = len(found) > last or files.log.stat().st_size > MOST_AT_ONCE
    return MetricSeries(task=run.task, name=metric.name, points=points), cut


def _times(files: TaskFiles, offsets: list[int]) -> list[float]:
    """When the lines at these offsets, in their order, were written; without an index, when the last of the log was."""
    try:
        index = LogIndex(files.log_index)
    except FileNotFoundError:
        return [files.log.stat().st_mtime] * len(offsets)
    with index:
        marks = index.marks_from(offsets[0])
        mark = following = next(marks, None)
        times = []
        for offset in offsets:
            while following is not None and following.offset <= offset:
                mark, following = following, next(marks, None)
            times.append(0.0 if mark is None else mark.time_us / _US)
        return times
