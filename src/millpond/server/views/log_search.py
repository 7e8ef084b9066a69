"""Search the logs of a job's tasks for a text or for lines that look like errors, from a place on or back from it.

A request reads for a bounded time and says where the next one goes on, so a log of any size is searched without one
long answer. Words are looked for in whole blocks and not line by line, which is much faster.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from millpond.model.errors import InvalidInputError
from millpond.node.host.clocks import MonotonicClock
from millpond.node.task.records import TaskFiles, TaskId
from millpond.server.runtime.active_jobs.job_lookup import JobLookup
from millpond.server.views.logs import require_log
from millpond.specs.api.jobs.logs import LogHit, LogSearchInfo

_ENDINGS: Final = ("error", "exception", "traceback", "out of memory", "segmentation fault")
"""Also at the end of a longer word, such as ``ValueError``."""
_WHOLE_WORDS: Final = ("fatal", "failed", "killed", "nan")
ERROR_LINE: Final = rf"({'|'.join(_ENDINGS)}|\b(?:{'|'.join(_WHOLE_WORDS)}))\b"
"""What a line that looks like an error has, in letters of either case; for scripts of pages too."""
LONGEST_SEARCH_S: Final = 0.25
"""After so long a request says where it is."""
BLOCK_BYTES: Final = 262_144
"""Read at a time; longer lines are searched in pieces of this."""
_SHOWN_BYTES: Final = 1_000
_ERROR: Final = re.compile(ERROR_LINE.encode())
_ERROR_WORDS: Final = tuple(
    re.compile(pattern.encode())
    for pattern in (
        *(rf"{word}\b" for word in _ENDINGS),
        *(rf"{word}\b(?<!\w{word})" for word in _WHOLE_WORDS),
    )
)
"""The same, word by word, each beginning with letters: so ``re`` finds them fifty times as fast."""
_COLOURS: Final = re.compile(rb"\x1b\[[0-9;?]*[a-z]|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)")
"""And other sequences that are not shown; in lower case, as logs are looked at. No line end is in one."""


class LogPlace(NamedTuple):
    """A place in the logs of a run."""

    task: int
    offset: int


@dataclass(frozen=True, slots=True)
class LogSearchRequest:
    """What is looked for.

    Attributes:
        text: what a line has, in ASCII letters of either case.
        errors: a line looks like an error.
        task: None is all of them, one after the other.
        attempt: None is the present one.
        backwards: the nearest line that begins before ``at``, else that which begins there or behind it.
        at: None is the beginning or, backwards, the end.
    """

    text: str = ""
    errors: bool = False
    task: int | None = None
    attempt: int | None = None
    backwards: bool = False
    at: LogPlace | None = None


class LogSearch:
    """Searches the logs of jobs. Any thread."""

    def __init__(self, state_dir: Path, lookup: JobLookup, clock: MonotonicClock = time.monotonic) -> None:
        self._state_dir = state_dir
        self._lookup = lookup
        self._clock = clock

    def find(self, job: str, request: LogSearchRequest) -> LogSearchInfo:
        """The next line of a job's output that is looked for, or how far the search came in its time.

        Raises:
            NotFoundError, InvalidInputError: there is no such job, task, attempt or place; it is an array; nothing is
                looked for.
        """
        if not (request.text or request.errors) or "\n" in request.text:
            raise InvalidInputError("nothing is looked for in a line", "give a `text` of one line, or `errors=true`")
        info = self._lookup.look_at_one(job)
        require_log(self._state_dir, info, request.task, request.attempt)
        attempt = request.attempt or max(info.attempt, 1)
        tasks = range(len(info.tasks)) if request.task is None else range(request.task, request.task + 1)
        if request.at is not None and request.at.task not in tasks:
            raise InvalidInputError(
                f"the search goes on in task {request.at.task}, which is none of those searched",
                "pass on `at_task` and `at_offset` of the answer before, with the same `task`",
            )
        until = self._clock() + LONGEST_SEARCH_S
        place = request.at
        for task in _in_order(tasks, request.at, request.backwards):
            offset = place.offset if place is not None and place.task == task else None
            scan = _Scan(TaskFiles.of(self._state_dir, TaskId(info.id, attempt, task)).log, request)
            hit = scan.run(offset, lambda: self._clock() >= until)
            place = LogPlace(task, scan.offset)
            if hit is not None:
                shown = LogHit(task=task, offset=hit.begin, next_offset=hit.end, line=hit.text)
                at = hit.begin if request.backwards else hit.end
                return LogSearchInfo(job=info.id, attempt=attempt, hit=shown, at_task=task, at_offset=at)
            if not scan.is_over:
                return LogSearchInfo(job=info.id, attempt=attempt, at_task=task, at_offset=scan.offset)
        end = place or LogPlace(0, 0)
        return LogSearchInfo(job=info.id, attempt=attempt, at_task=end.task, at_offset=end.offset, over=True)


class _Line(NamedTuple):
    """A line of a log: from which byte to which, and the beginning of its text."""

    begin: int
    end: int
    text: str


class _Scan:
    """One log being searched.

    Attributes:
        offset: how far it came.
        is_over: up to the end, or back to the beginning.
    """

    def __init__(self, log: Path, request: LogSearchRequest) -> None:
        self._log = log
        self._backwards = request.backwards
        self._errors = request.errors
        self._text = request.text.encode().lower()
        self._words = (re.compile(re.escape(self._text)),) if self._text else _ERROR_WORDS
        self.offset = 0
        self.is_over = False

    def run(self, offset: int | None, is_late: Callable[[], bool]) -> _Line | None:
        """The first line found from a place on, in the direction of the search; at least one block is read.

        Args:
            offset: None: from the beginning, or backwards from the end.
        """
        try:
            file = self._log.open("rb")
        except FileNotFoundError:
            self.is_over = True
            return None
        with file:
            size = file.seek(0, 2)
            self.offset = min(offset if offset is not None else size if self._backwards else 0, size)
            while True:
                begin, data = self._block(file, size)
                self.is_over = not data
                found = self._found(data.lower())
                if found is not None:
                    line = data[found.start : found.stop].rstrip(b"\n")[:_SHOWN_BYTES]
                    return _Line(begin + found.start, begin + found.stop, line.decode(errors="replace"))
                self.offset = begin if self._backwards else begin + len(data)
                if self.is_over or is_late():
                    return None

    def _block(self, file: BinaryIO, size: int) -> tuple[int, bytes]:
        """Where the next block begins, and its whole lines; without a line end it is a piece of a long line."""
        if self._backwards:
            begin = max(self.offset - BLOCK_BYTES, 0)
            file.seek(begin)
            data = file.read(self.offset - begin)
            cut = data.find(b"\n") + 1 if begin else 0
            return (begin, data) if cut == len(data) else (begin + cut, data[cut:])
        file.seek(self.offset)
        data = file.read(min(BLOCK_BYTES, size - self.offset))
        return self.offset, data if self.offset + len(data) >= size else data[: data.rfind(b"\n") + 1] or data

    def _found(self, block: bytes) -> range | None:
        """From where to where the line stands in a block that is looked for: the first, or backwards the last."""
        plain = _COLOURS.sub(b"", block) if b"\x1b" in block else block
        best: range | None = None
        for word in self._words:
            low, high = 0, len(plain)  # the part in which a line would be nearer than the best so far
            if best is not None:
                low, high = (best.stop, high) if self._backwards else (0, best.start)
            places = word.finditer(plain, low, high)
            lines = (
                _line_at(plain, place.start()) for place in (reversed(list(places)) if self._backwards else places)
            )
            best = next((line for line in lines if self._is_wanted(plain[line.start : line.stop])), best)
        if best is None or plain is block:
            return best
        number = plain.count(b"\n", 0, best.start)
        return _line_at(block, len(block) - len(block.split(b"\n", number)[number]))

    def _is_wanted(self, line: bytes) -> bool:
        """Of a line that has one of the words; text and errors may be looked for together."""
        return not (self._text and self._errors) or _ERROR.search(line) is not None


def _line_at(block: bytes, at: int) -> range:
    """From where to where the line of a place stands, with its end."""
    return range(block.rfind(b"\n", 0, at) + 1, block.find(b"\n", at) + 1 or len(block))


def _in_order(tasks: range, at: LogPlace | None, backwards: bool) -> range:
    """The tasks that are searched, from the place on."""
    if backwards:
        return tasks[: tasks.index(at.task) + 1][::-1] if at is not None else tasks[::-1]
    return tasks[tasks.index(at.task) :] if at is not None else tasks
