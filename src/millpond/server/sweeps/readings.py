"""What a trial says of its metric, read as it comes: reports of ``millpond.job.report``, else printed lines.

What is looked for in printed lines is text with a place for a number, not a regular expression: anybody's pattern would
run in the server that everybody uses.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from millpond.node.records import TaskFiles, TaskId
from millpond.server.files.outputs import open_below
from millpond.server.files.reports import points_of
from millpond.specs.sweeps import Metric

MOST_AT_ONCE: Final = 4 * 2**20
"""Bytes of one file that are read in one look; of what is more than that behind, the end."""
LONGEST_LINE: Final = 2_000
_NUMBER: Final = r"[-+]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][-+]?\d{1,4})?|[-+]?(?:nan|inf|NaN|Infinity)"


@dataclass(frozen=True, slots=True)
class Point:
    """The metric at a step; ``value`` is None when it was not finite."""

    step: float
    value: float | None


class Reading:
    """One trial's reports in one attempt, those of its first task.

    Args:
        files: where the task leaves them.
    """

    def __init__(self, files: TaskFiles, metric: Metric) -> None:
        self._metric = metric
        self._reports = _Lines(files.metrics)
        self._printed = _Lines(files.log)
        self._value = _pattern(metric.printed, "{value}", metric.name)
        self._step = _pattern(metric.printed_step, "{step}", "step")
        self._reported = False
        self._count = 0

    @staticmethod
    def of(state_dir: Path, job: str, attempt: int, metric: Metric) -> Reading:
        """That of a job's attempt."""
        return Reading(TaskFiles.of(state_dir, TaskId(job, attempt, 0)), metric)

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

    def _in_report(self, line: bytes) -> list[Point]:
        found = [point for name, point in points_of(line) if name == self._metric.name]
        return [Point(self._next_step(point.step), point.value) for point in found]

    def _in_line(self, line: bytes) -> Point | None:
        text = line[:LONGEST_LINE].decode(errors="replace")
        value = self._value.search(text)
        if value is None:
            return None
        step = self._step.search(text)
        number = float(value[1])
        at = None if step is None else float(step[1])
        return Point(self._next_step(at), number if math.isfinite(number) else None)

    def _next_step(self, told: float | None) -> float:
        """The step that was told, or how many values came so far."""
        self._count += 1
        return told if told is not None and math.isfinite(told) else float(self._count)


class _Lines:
    """The lines of a file that grows, each once; a line that is not whole yet is left for later."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def fresh(self, over: bool) -> list[bytes]:
        opened = open_below(self._path.parent, self._path.name)
        if opened is None:
            return []
        with opened.file as file:
            skipped = opened.size - self._offset > MOST_AT_ONCE
            if skipped:
                self._offset = opened.size - MOST_AT_ONCE
            file.seek(self._offset)
            data = file.read(MOST_AT_ONCE)
        whole = data if over else data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        lines = whole.split(b"\n")
        return lines[1 if skipped else 0 : None if over else -1]


def _pattern(text: str | None, place: str, name: str) -> re.Pattern[str]:
    """How a line tells a number: as it was laid down, or the name, then ``=`` or ``:``."""
    if text is None:
        return re.compile(rf"(?<![\w.]){re.escape(name)}\s{{0,3}}[=:]\s{{0,3}}({_NUMBER})")
    before, _, after = text.partition(place)
    return re.compile(f"{_literal(before)}({_NUMBER}){_literal(after)}")


def _literal(text: str) -> str:
    """This text; blanks may be wider."""
    return r"\s{1,8}".join(map(re.escape, re.split(r"\s+", text)))
