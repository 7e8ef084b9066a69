"""Read what tasks leave, never following a link: output files, metrics, results of functions."""

from __future__ import annotations

import heapq
import json
import os
import stat
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from millpond.job.envelopes import LARGEST_ENVELOPE
from millpond.model.errors import ConflictError, NotFoundError
from millpond.model.folders import LARGEST_BATCHED, batches, is_inside, is_under
from millpond.node.host.folder_trees import Entry, entries_below
from millpond.node.task.layout import open_regular, reach_regular
from millpond.node.task.records import TaskFiles, TaskId, note_of_removal
from millpond.node.task.workspace import OUTPUT
from millpond.specs.api.jobs.files import MetricPoint, MetricSeries, MetricsInfo, OutputFile, OutputList
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.escaped_text import visible
from millpond.specs.quantities import size_text

MOST_LISTED: Final = 100_000
MOST_SEEN: Final = 1_000
"""Entries of a folder that are looked at for a glimpse of it."""
MOST_GLIMPSED: Final = 100
TAIL_BYTES: Final = 16 * 2**20
"""Of a longer file of metrics, the end is read."""
MOST_READ: Final = 4 * TAIL_BYTES
"""Bytes of the files of all tasks together, those of the first tasks before others."""
MOST_SERIES: Final = 1_000
MOST_LINES: Final = 200_000
"""Of a file with more, the last."""
_LARGEST: Final = sys.float_info.max
_LONGEST_NAME: Final = 200
"""Characters of the name of a metric."""


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """A file of an output, to be closed by the caller; ``size`` in bytes and ``version`` as it was opened."""

    file: BinaryIO
    size: int
    version: str


@dataclass(frozen=True, slots=True)
class LeftFile:
    """A file of an output, or a link, which is never followed.

    Attributes:
        path: from the top; bytes of it that are no UTF-8 are lone surrogates.
    """

    path: str
    size: int
    modified_at: float
    is_link: bool


@dataclass(frozen=True, slots=True)
class OutputGlimpse:
    """The newest files of an attempt's output, as far as a bounded look finds them.

    Attributes:
        files: the newest first.
        count: how many were seen, those that are left out here too.
        whole: there are no entries beyond those that were looked at.
    """

    attempt: int
    files: list[LeftFile]
    count: int
    whole: bool


def check_not_removed(state_dir: Path, job: str) -> None:
    """Returns if what a job wrote was not removed to make room.

    Raises:
        NotFoundError: it was.
    """
    if note_of_removal(state_dir, job).exists():
        raise NotFoundError(
            f"the output of job {job!r} was removed to make room", "keep more with `pond up --keep-logs-gib`"
        )


def list_output(attempt_dir: Path, job: str, attempt: int, under: str = "") -> OutputList:
    """The regular files of an attempt's output, by path.

    Args:
        under: one file of it, or one folder with all below; empty: everything.

    Raises:
        ConflictError: the job writes to a folder of the machine, not to one of its own.
    """
    left_out = no_files = 0

    def leave_out(entry: Entry) -> None:
        nonlocal left_out, no_files
        if stat.S_ISREG(entry.status.st_mode):
            left_out += 1
        else:
            no_files += 1

    entries = entries_below(own_output(attempt_dir))
    if wanted := under.rstrip("/"):
        # A path that is too long has no beginning here: it may lie there, so it is counted.
        entries = (entry for entry in entries if entry.path is None or is_under(entry.path, wanted))
    found = regular_files(entries, leave_out)
    first = heapq.nsmallest(MOST_LISTED + 1, found)  # of millions of files, that many are in memory
    files = [
        OutputFile(path=path, size=status.st_size, modified_at=status.st_mtime, version=_version(status))
        for path, status in first[:MOST_LISTED]
    ]
    truncated = len(first) > MOST_LISTED
    return OutputList(job=job, attempt=attempt, files=files, truncated=truncated, left_out=left_out, no_files=no_files)


def glimpse_output(attempt_dir: Path, attempt: int) -> OutputGlimpse:
    """The newest files among the first ``MOST_SEEN`` entries of an attempt's output, whatever their names are.

    Raises:
        ConflictError: as in ``list_output``.
    """
    seen = list(islice(entries_below(own_output(attempt_dir)), MOST_SEEN + 1))
    files = [
        LeftFile(entry.path, entry.status.st_size, entry.status.st_mtime, stat.S_ISLNK(entry.status.st_mode))
        for entry in seen[:MOST_SEEN]
        if entry.path is not None and (stat.S_ISREG(entry.status.st_mode) or stat.S_ISLNK(entry.status.st_mode))
    ]
    files.sort(key=lambda file: (-file.modified_at, file.path))
    return OutputGlimpse(attempt, files[:MOST_GLIMPSED], len(files), len(seen) <= MOST_SEEN)


def open_output(attempt_dir: Path, path: str) -> OpenedFile:
    """One file of an attempt's output.

    Raises:
        NotFoundError: there is no such regular file; also when a link is on the way.
        ConflictError: as in ``list_output``, or the server may not read the file.
    """
    folder, file = own_output(attempt_dir), None
    try:
        if is_inside(path):
            file = reach_regular(folder, path)
    except PermissionError as error:
        raise ConflictError(
            f"the rights of {path!r} in the output do not let the server read it",
            "end the job's program with `chmod -R u+rX $MILLPOND_OUTPUT`, or have an admin do so for this file",
        ) from error
    except (OSError, ValueError):
        pass
    if file is None:
        raise NotFoundError(f"no file {path!r} in the output", "list them with `pond output ls`")
    return _opened(file)


def first_batch(open_one: Callable[[str], OpenedFile], paths: Iterable[str]) -> bytes:
    """The first of some files in one batch, as far as they fit: up to one that cannot be opened, or is too large.

    Args:
        open_one: raises NotFoundError where there is no such file, ConflictError where it cannot be read.
    """

    def contents() -> Iterator[bytes]:
        for path in paths:
            try:
                opened = open_one(path)
            except (NotFoundError, ConflictError):
                return
            with opened.file:
                if opened.size > LARGEST_BATCHED:
                    return
                yield opened.file.read(opened.size)

    return next(batches(contents()), b"")


def open_below(folder: Path, path: str) -> OpenedFile | None:
    """A regular file below a folder that a task can write to, reached without a link; None when there is none."""
    file = open_regular(folder, path)
    return None if file is None else _opened(file)


def _opened(file: BinaryIO) -> OpenedFile:
    found = os.fstat(file.fileno())
    return OpenedFile(file, found.st_size, _version(found))


def _version(found: os.stat_result) -> str:
    """What distinguishes a file from what stands in its place, or in it, later."""
    return f"{found.st_ino:x}-{found.st_size:x}-{found.st_mtime_ns:x}"


def own_output(attempt_dir: Path) -> Path:
    """The output folder of an attempt, whether or not it exists.

    Raises:
        ConflictError: as in ``list_output``.
    """
    folder = attempt_dir / OUTPUT
    if folder.is_symlink():
        raise ConflictError(f"the job writes its output to {visible(str(folder.readlink()))}", "copy it from there")
    return folder


def regular_files(
    entries: Iterable[Entry], leave_out: Callable[[Entry], None] = lambda entry: None
) -> Iterator[tuple[str, os.stat_result]]:
    """Those of a folder's entries that are regular files with a path that can be printed, by that path.

    Args:
        leave_out: called for each other entry that is no folder: a regular file with another path, a link, a pipe.
    """
    for entry in entries:
        if stat.S_ISDIR(entry.status.st_mode):
            continue
        if stat.S_ISREG(entry.status.st_mode) and entry.path is not None and entry.path.isprintable():
            yield entry.path, entry.status
        else:
            leave_out(entry)


def read_metrics(state_dir: Path, info: JobInfo, attempt: int, task: int | None, last: int) -> MetricsInfo:
    """The metrics of an attempt's tasks.

    Args:
        task: None is all of them.
        last: how many of the newest points of each series.
    """
    series: dict[tuple[int, str], deque[MetricPoint]] = {}
    truncated, left = False, MOST_READ
    for number in range(len(info.tasks)) if task is None else [task]:
        path = TaskFiles.of(state_dir, TaskId(info.id, attempt, number)).metrics
        lines, read, cut = _tail(path, min(TAIL_BYTES, left))
        left -= read
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
        ConflictError: what lies there is larger than any result: its reader would take all of it into memory.
    """
    path = TaskFiles.of(state_dir, TaskId(info.id, attempt, task)).result
    opened = open_below(path.parent, path.name)
    if opened is None:
        raise NotFoundError(
            f"task {task} of job {info.id!r} ({info.state}) has returned nothing", "see pond logs for what it wrote"
        )
    if opened.size > LARGEST_ENVELOPE:
        opened.file.close()
        raise ConflictError(
            f"the result of task {task} of job {info.id!r} has {size_text(opened.size)}, which no result has",
            "write what is large to $MILLPOND_OUTPUT, and fetch it with `pond get-output`",
        )
    return opened


def _tail(path: Path, most: int) -> tuple[list[bytes], int, bool]:
    """The whole lines in the last bytes of a file, how many bytes were read, and whether there was more before."""
    opened = open_below(path.parent, path.name)
    if opened is None:
        return [], 0, False
    with opened.file as file:
        begin = max(0, opened.size - most)
        file.seek(begin)
        data = file.read(most)
    lines = data.split(b"\n")
    # The last is empty, or not whole yet; the first of a cut file begins somewhere inside.
    whole = lines[1 if begin else 0 : -1]
    return whole[-MOST_LINES:], len(data), begin > 0 or len(whole) > MOST_LINES


def points_of(line: bytes) -> list[tuple[str, MetricPoint]]:
    """The points of a line, each with its name.

    A program may have written to the file itself, so what is no report counts as none.
    """
    try:
        report = reported_values(json.loads(line))
    except (ValueError, RecursionError):
        return []
    if report is None:
        return []
    return [
        (metric_name(name), MetricPoint(at=report.at, step=report.step, value=value))
        for name, value in report.values.items()
    ]


class Reported(NamedTuple):
    """One report of a task: when, at which step, and values by the names of metrics; None is not finite."""

    at: float
    step: float | None
    values: dict[str, float | None]


def reported_values(plain: Any) -> Reported | None:
    """What a line of a task's file reports, as it was parsed; None where it is no report."""
    try:
        at, step, values = plain["at"], plain["step"], plain["values"]
        if not _is_number(at) or not (step is None or _is_number(step)) or not isinstance(values, dict):
            return None
    except (KeyError, TypeError, IndexError):
        return None
    return Reported(at, step, {name: value for name, value in values.items() if value is None or _is_number(value)})


def metric_name(reported: str) -> str:
    """The name of a metric as it is shown: cut, and with no half of a character, which no answer could carry."""
    name = reported[:_LONGEST_NAME]
    return name if name.isascii() else name.encode(errors="replace").decode()


def _is_number(value: Any) -> bool:
    return (type(value) is float or type(value) is int) and -_LARGEST <= value <= _LARGEST
