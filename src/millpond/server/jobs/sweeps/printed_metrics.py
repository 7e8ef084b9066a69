"""The metric of a trial that only prints it, as a series beside those that programs report."""

from __future__ import annotations

from pathlib import Path

from millpond.node.task.log_index import LogIndex
from millpond.node.task.records import TaskFiles, TaskId
from millpond.server.jobs.sweeps.readings import MOST_AT_ONCE, TrialReading
from millpond.specs.api.files import MetricPoint, MetricSeries
from millpond.specs.job.sweeps import SweepMetric

_US = 1_000_000


def printed_series(state_dir: Path, run: TaskId, metric: SweepMetric, last: int) -> tuple[MetricSeries | None, bool]:
    """What the output of a trial's first task tells of its metric, None where that is nothing, and whether older
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
