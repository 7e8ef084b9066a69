"""The parts of a task's log: which stream wrote each and when, and where the last lines or hours begin."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

from millpond.node.task.output import LogIndex, Mark, Stream
from millpond.node.task.records import TaskFiles

MOST_TAIL_BYTES: Final = 16 * 1024 * 1024
"""Of the ends of a job's logs together, searched for the last lines of its tasks."""
_BLOCK: Final = 65_536
_US: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class LogPart:
    """A part of a piece of a log.

    Attributes:
        end: where in the piece it ends, in bytes; it begins where the one before it ended.
        written_at: when its first byte was written, in seconds since 1970; None: not known.
        last_of_stream: what comes behind it is of the other stream.
    """

    end: int
    stream: Stream
    written_at: float | None
    last_of_stream: bool


def parts_of(files: TaskFiles, offset: int, length: int, *, by_time: bool) -> Iterator[LogPart]:
    """The parts of a piece of a log, in order, at least one.

    Args:
        by_time: what was written at different times is different parts too.
    """
    stream = Stream.STDOUT
    written_at: float | None = None
    for mark in _marks(files, offset):
        if mark.offset >= offset + length:
            break
        if mark.offset > offset and (by_time or mark.stream is not stream):
            yield LogPart(mark.offset - offset, stream, written_at, mark.stream is not stream)
        elif mark.offset > offset:
            continue
        stream, written_at = mark.stream, mark.time_us / _US
    yield LogPart(length, stream, written_at, False)


def begin_of(files: TaskFiles, tail: int | None, since: float | None, tasks: int = 1) -> int:
    """Where a reader begins who wants so many last lines, and nothing that was written before a time.

    Args:
        tail: fewer lines where these are longer than the task's share of ``MOST_TAIL_BYTES``.
        since: in seconds since 1970.
        tasks: number of logs that are read together.
    """
    try:
        file = files.log.open("rb")
    except FileNotFoundError:
        return 0
    with file:
        begin = 0 if since is None else _offset_since(files, since, os.fstat(file.fileno()))
        return begin if tail is None else max(begin, _offset_of_tail(file, tail, MOST_TAIL_BYTES // tasks))


def _marks(files: TaskFiles, offset: int) -> Iterator[Mark]:
    try:
        index = LogIndex(files.log_index)
    except FileNotFoundError:
        return
    with index:
        yield from index.marks_from(offset)


def _offset_since(files: TaskFiles, since: float, log: os.stat_result) -> int:
    """Of a log without an index nothing is known but when the last of it was written."""
    try:
        index = LogIndex(files.log_index)
    except FileNotFoundError:
        return 0 if log.st_mtime >= since else log.st_size
    with index:
        found = index.offset_since(int(since * _US))
    return log.st_size if found is None else found


def _offset_of_tail(file: BinaryIO, lines: int, most: int) -> int:
    """Where the last lines of a file begin; one without a line end counts too. Read from the end, in blocks.

    Args:
        most: number of bytes to look at; where they do not hold all the lines, the first whole line in them is taken.
    """
    end = file.seek(0, os.SEEK_END)
    if lines == 0 or end == 0:
        return end
    file.seek(end - 1)
    wanted = lines + (file.read(1) == b"\n")  # line ends up to and with that before the first line wanted
    limit = max(end - max(most, 2 * _BLOCK), 0)  # so that the last line end is not in the first block
    at, block = end, b""
    while at > limit:
        begin = max(at - _BLOCK, limit)
        file.seek(begin)
        block = file.read(at - begin)
        ends = block.count(b"\n")
        if ends >= wanted:
            position = len(block)
            for _ in range(wanted):
                position = block.rindex(b"\n", 0, position)
            return begin + position + 1
        wanted -= ends
        at = begin
    return limit and limit + block.find(b"\n") + 1
