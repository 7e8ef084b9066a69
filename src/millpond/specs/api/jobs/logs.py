"""Bodies about output: what a job's tasks wrote, piece by piece."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LogStream = Literal["stdout", "stderr"]

FIRST_CURSOR = "1:"
"""The one cursor that a client may make up: a log stream from here begins with a job's first run, not with its present
one. All others are a server's, to be passed back as they came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogChunk:
    """A piece of a task's output: one line of an NDJSON stream.

    Attributes:
        offset, next_offset: where the piece begins and ends in the task's log file, in bytes.
        data: the text; bytes that are not UTF-8 become U+FFFD.
        stream: what it was written to: ``stdout`` or ``stderr``.
        written_at: when it was written, in seconds since 1970; null where that is not known, or was not asked for.
        cursor: ask with ``?cursor=`` to go on behind this piece after a lost connection.
        attempt_over: everything of this task in this attempt has been sent.
        job_over: the last line of the stream: the job has ended. ``exit_code`` is then the job's.
    """

    job: str
    task: int
    attempt: int
    offset: int
    next_offset: int
    data: str = ""
    stream: LogStream = "stdout"
    written_at: float | None = None
    cursor: str = ""
    attempt_over: bool = False
    job_over: bool = False
    exit_code: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogHit:
    """A line that a search found.

    Attributes:
        offset, next_offset: where it begins and ends in the task's log file, in bytes.
        line: its first 1,000 bytes as text.
    """

    task: int
    offset: int
    next_offset: int
    line: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSearchInfo:
    """What a search of the output found in the time that one request has.

    Attributes:
        hit: the nearest line; null where none was found so far.
        at_task, at_offset: ask with these to go on from here.
        over: everything was searched, up to the end or, backwards, to the beginning.
    """

    job: str
    attempt: int
    hit: LogHit | None = None
    at_task: int = 0
    at_offset: int = 0
    over: bool = False
