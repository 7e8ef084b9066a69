"""What tasks report of themselves: metrics as they go, and the result of the function they ran."""

from __future__ import annotations

import json
import sys
from collections import deque
from pathlib import Path
from typing import Any, Final

from millpond.model.errors import NotFoundError
from millpond.node.task.records import TaskFiles, TaskId
from millpond.server.storage.files.outputs import OpenedFile, open_below
from millpond.specs.api.files import MetricPoint, MetricSeries, MetricsInfo
from millpond.specs.api.jobs import JobInfo

TAIL_BYTES: Final = 16 * 2**20
"""Of a longer file of metrics, the end is read."""
MOST_SERIES: Final = 1_000
MOST_LINES: Final = 200_000
"""Of a file with more, the last."""
_LARGEST: Final = sys.float_info.max


def read_metrics(state_dir: Path, info: JobInfo, attempt: int, task: int | None, last: int) -> MetricsInfo:
    """The metrics of an attempt's tasks.

    Args:
        task: None is all of them.
        last: how many of the newest points of each series.
    """
    series: dict[tuple[int, str], deque[MetricPoint]] = {}
    truncated = False
    for number in range(len(info.tasks)) if task is None else [task]:
        path = TaskFiles.of(state_dir, TaskId(info.id, attempt, number)).metrics
        lines, cut = _tail(path)
        truncated |= cut
        for line in lines:
            for name, point in points_of(line):
                if (number, name) not in series and len(series) >= MOST_SERIES:
                    truncated = True
                    continue
                kept = series.setdefault((number, name), deque(maxlen=last))
                truncated |= len(kept) == last
                kept.append(point)
    found = [MetricSeries(task=number, name=name, points=list(points)) for (number, name), points in series.items()]
    return MetricsInfo(job=info.id, attempt=attempt, series=found, truncated=truncated)


def open_result(state_dir: Path, info: JobInfo, attempt: int, task: int) -> OpenedFile:
    """What a task's function returned, as it was written: it is never looked into here.

    Raises:
        NotFoundError: nothing was returned (yet).
    """
    path = TaskFiles.of(state_dir, TaskId(info.id, attempt, task)).result
    opened = open_below(path.parent, path.name)
    if opened is None:
        raise NotFoundError(
            f"task {task} of job {info.id!r} ({info.state}) has returned nothing", "see pond logs for what it wrote"
        )
    return opened


def _tail(path: Path) -> tuple[list[bytes], bool]:
    """The whole lines at the end of a file, and whether there were more before them."""
    opened = open_below(path.parent, path.name)
    if opened is None:
        return [], False
    with opened.file as file:
        begin = max(0, opened.size - TAIL_BYTES)
        file.seek(begin)
        lines = file.read(TAIL_BYTES).split(b"\n")
    # The last is empty, or not whole yet; the first of a cut file begins somewhere inside.
    whole = lines[1 if begin else 0 : -1]
    return whole[-MOST_LINES:], begin > 0 or len(whole) > MOST_LINES


def points_of(line: bytes) -> list[tuple[str, MetricPoint]]:
    """The points of a line, each with its name.

    A program may have written to the file itself, so what is no report counts as none.
    """
    try:
        report = json.loads(line)
        at, step, values = report["at"], report["step"], report["values"]
        if not _is_number(at) or not (step is None or _is_number(step)) or not isinstance(values, dict):
            return []
    except (ValueError, KeyError, TypeError, RecursionError):
        return []
    return [
        (str(name)[:200], MetricPoint(at=at, step=step, value=value))
        for name, value in values.items()
        if value is None or _is_number(value)
    ]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= _LARGEST
