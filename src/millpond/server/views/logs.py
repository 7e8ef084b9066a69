"""Follow the output of a job's tasks across attempts, as a stream of chunks."""

from __future__ import annotations

import asyncio
import codecs
import os
import re
import threading
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from millpond.model.errors import InvalidInputError, NotFoundError
from millpond.model.states import JobState, TaskState
from millpond.node.task.output import Stream
from millpond.node.task.records import TaskFiles, TaskId
from millpond.server.runtime.active_jobs.job_lookup import JobLookup
from millpond.server.storage.files.outputs import check_not_removed
from millpond.server.views import log_parts
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.api.jobs.logs import LogChunk

CHUNK_BYTES: Final = 65_536
FIRST_POLL_S: Final = 0.01
LONGEST_POLL_S: Final = 0.2
"""A reader looks again soon after there was something, and less and less often while there is nothing."""
KEEP_ALIVE_S: Final = 15.0
"""A silent stream says something this often, so that a vanished client is noticed."""

_POLL_GROWTH: Final = 1.3
_CURSOR: Final = re.compile(r"(\d{1,9}):(?:((?:\d{1,9}=\d{1,18})(?:,\d{1,9}=\d{1,18})*)?|z([\w-]+=*))", re.ASCII)
_OFFSETS: Final = re.compile(r"(?:\d{1,18})?(?:,(?:\d{1,18})?)*")
_MOST_IN_PLAIN: Final = 100
"""Tasks. The places of more are packed, as a cursor of thousands would not fit into the head of a request."""
_MOST_PACKED: Final = 2**19
"""Bytes of places, however few they were packed in."""


@dataclass(slots=True)
class Position:
    """Where a reader stands: in which attempt, and how far in each task's log."""

    attempt: int
    offsets: dict[int, int] = field(default_factory=dict)

    def __str__(self) -> str:
        if len(self.offsets) > _MOST_IN_PLAIN:
            places = ",".join(str(self.offsets.get(task, "")) for task in range(max(self.offsets) + 1))
            return f"{self.attempt}:z{urlsafe_b64encode(zlib.compress(places.encode(), 1)).decode()}"
        return f"{self.attempt}:" + ",".join(f"{task}={offset}" for task, offset in sorted(self.offsets.items()))

    @staticmethod
    def parse(text: str) -> Position:
        """What ``str`` wrote.

        Raises:
            InvalidInputError: it is something else.
        """
        match = _CURSOR.fullmatch(text)
        places = _unpacked(match.group(3)) if match and match.group(3) else ""
        if match is None or not _OFFSETS.fullmatch(places):
            raise InvalidInputError(f"{text[:60]!r} is not a cursor", "pass on the cursor of the last chunk you got")
        plain = [pair.split("=") for pair in (match.group(2) or "").split(",") if pair]
        pairs = plain or [(task, offset) for task, offset in enumerate(places.split(",")) if offset]
        return Position(int(match.group(1)), {int(task): int(offset) for task, offset in pairs})

    def of_tasks(self, count: int) -> Position:
        """The same without tasks that the job does not have: it goes out again with every chunk."""
        return Position(self.attempt, {task: offset for task, offset in self.offsets.items() if task < count})


def _unpacked(text: str) -> str:
    """Places as they were packed; of anything else, what is none."""
    try:
        return zlib.decompressobj().decompress(urlsafe_b64decode(text), _MOST_PACKED).decode()
    except (ValueError, zlib.error):
        return "damaged"


@dataclass(frozen=True, slots=True)
class LogRequest:
    """What a reader asked for.

    Attributes:
        task: None is all of them.
        attempt: None is the present one, and with ``follow`` those after it too.
        offset: where to begin in the log of ``task``, in bytes.
        tail: begin with so many last lines of each task's log; None: with the first.
        since: begin with what was written then or later, in seconds since 1970.
        timestamps: each chunk says when it was written.
        end: read no further than this offset of each task's log.
        cursor: of an earlier chunk; goes on behind it, whatever ``offset``, ``tail`` and ``since`` say.
    """

    task: int | None = None
    attempt: int | None = None
    offset: int = 0
    follow: bool = False
    cursor: str = ""
    tail: int | None = None
    since: float | None = None
    timestamps: bool = False
    end: int | None = None


class Logs:
    """Opens the logs of jobs.

    Args:
        closing: set when the server is about to stop.
    """

    def __init__(self, state_dir: Path, lookup: JobLookup, closing: threading.Event) -> None:
        self._state_dir = state_dir
        self._lookup = lookup
        self._closing = closing
        self._turn = asyncio.Lock()

    async def read(self, job: str, request: LogRequest, still_may: Callable[[], bool]) -> AsyncGenerator[LogChunk]:
        """A job's output; everything that can be wrong with the request is raised before the first chunk.

        Args:
            still_may: whether its reader may read it still; it ends soon after they may not, even while it is silent.

        Raises:
            NotFoundError, InvalidInputError: there is no such job, task, attempt or place; it is an array.
        """
        await asyncio.to_thread(self._lookup.look_at_one, job)
        look = partial(self._lookup.look, job)

        def ends() -> bool:
            return self._closing.is_set() or not still_may()

        reader = await asyncio.to_thread(LogReader, self._state_dir, look, request, ends)
        return self._in_turn(reader.chunks(), still_may)

    async def _in_turn(
        self, chunks: AsyncGenerator[LogChunk], still_may: Callable[[], bool]
    ) -> AsyncGenerator[LogChunk]:
        """Chunks of one reader. Clients that take all at once never make us wait, so before each chunk, of whichever
        reader, the loop serves other requests."""
        async with aclosing(chunks):
            while True:
                async with self._turn:
                    await asyncio.sleep(0)
                chunk = await anext(chunks, None)
                if chunk is None or not still_may():
                    return
                yield chunk


class LogReader:
    """Reads the logs of one job.

    Args:
        look: gives the job as it is now.
        ends: whether the server goes away, or the reader may not go on; followers then end without a last word, and
            come back later.

    Raises:
        NotFoundError, InvalidInputError: there is no such task, attempt or place.
    """

    def __init__(
        self, state_dir: Path, look: Callable[[], JobInfo], request: LogRequest, ends: Callable[[], bool]
    ) -> None:
        self._state_dir = state_dir
        self._look = look
        self._request = request
        self._ends = ends
        info = look()
        require_log(state_dir, info, request.task, request.attempt)
        if request.cursor:
            self._position = Position.parse(request.cursor).of_tasks(len(info.tasks))
        else:
            self._position = Position(request.attempt or max(info.attempt, 1))
            if request.task is not None:
                self._position.offsets[request.task] = request.offset
            if request.tail is not None or request.since is not None:
                tasks = [request.task] if request.task is not None else range(len(info.tasks))
                for task in tasks:
                    begin = log_parts.begin_of(self._files(info.id, task), request.tail, request.since, len(tasks))
                    self._position.offsets[task] = max(self._position.offsets.get(task, 0), begin)

    async def chunks(self) -> AsyncGenerator[LogChunk]:
        """Everything there is; with ``follow`` also what comes, until the job (or the attempt asked for) is over."""
        said: set[int] = set()
        silent_s, pause_s = 0.0, FIRST_POLL_S
        while True:
            info = self._look()  # before reading: what an ended task wrote is then all there
            attempt = self._position.attempt
            tasks = [self._request.task] if self._request.task is not None else range(len(info.tasks))
            spoke = False
            for task in tasks:
                over = _is_over(info, attempt, task)
                for chunk in self._read(info.id, task, over):
                    spoke = True
                    yield chunk
                if over and task not in said:
                    said.add(task)
                    yield replace(self._chunk(info.id, task), attempt_over=True)
            if all(_is_over(info, attempt, task) for task in tasks):
                if info.attempt > attempt and self._request.attempt is None and self._request.follow:
                    self._position = Position(attempt + 1)
                    said.clear()
                    continue
                if info.settled:
                    last = self._request.task or 0
                    yield replace(self._chunk(info.id, last), job_over=True, exit_code=info.exit_code)
                    return
                if self._request.attempt is not None:
                    return
            if not self._request.follow or self._ends():
                return
            silent_s, pause_s = (0.0, FIRST_POLL_S) if spoke else (silent_s + pause_s, pause_s * _POLL_GROWTH)
            pause_s = min(pause_s, LONGEST_POLL_S)
            if silent_s >= KEEP_ALIVE_S:
                silent_s = 0.0
                yield self._chunk(info.id, self._request.task or 0)
            await asyncio.sleep(pause_s)

    def _files(self, job: str, task: int) -> TaskFiles:
        return TaskFiles.of(self._state_dir, TaskId(job, self._position.attempt, task))

    def _read(self, job: str, task: int, over: bool) -> Iterator[LogChunk]:
        """What is new in one task's log, each stream's by itself; a character that is not complete yet is left for
        later."""
        files = self._files(job, task)
        offset = self._position.offsets.get(task, 0)
        try:
            file = files.log.open("rb")
        except FileNotFoundError:
            return
        with file:
            size = os.fstat(file.fileno()).st_size  # what is written from now on waits for the next round
            size = size if self._request.end is None else min(size, self._request.end)
            while offset < size:
                file.seek(offset)
                data = file.read(min(CHUNK_BYTES, size - offset))
                final = over and offset + len(data) >= size
                used = 0
                for part in log_parts.parts_of(files, offset, len(data), by_time=self._request.timestamps):
                    decoder = codecs.getincrementaldecoder("utf-8")("replace")
                    text = decoder.decode(data[used : part.end], final=part.last_of_stream or final)
                    begin, used = used, part.end - len(decoder.getstate()[0])
                    if used > begin:
                        self._position.offsets[task] = offset + used
                        yield replace(
                            self._chunk(job, task),
                            offset=offset + begin,
                            data=text,
                            stream="stderr" if part.stream is Stream.STDERR else "stdout",
                            written_at=part.written_at if self._request.timestamps else None,
                        )
                if not used:
                    return
                offset += used

    def _chunk(self, job: str, task: int) -> LogChunk:
        """A chunk without output, at the present position: what a silent connection is kept open with."""
        end = self._position.offsets.get(task, 0)
        attempt, cursor = self._position.attempt, str(self._position)
        return LogChunk(job=job, task=task, attempt=attempt, offset=end, next_offset=end, cursor=cursor)


def require_log(state_dir: Path, job: JobInfo, task: int | None, attempt: int | None) -> None:
    """Refuse to read output that cannot be there; None is any task, and the present attempt.

    Raises:
        NotFoundError: there is no such task or attempt, or the output was removed.
    """
    if task is not None and not 0 <= task < len(job.tasks):
        raise NotFoundError(f"job {job.id!r} has no task {task}", f"tasks are 0 to {len(job.tasks) - 1}")
    if attempt is not None and not 1 <= attempt <= max(job.attempt, 1):
        raise NotFoundError(f"job {job.id!r} has no attempt {attempt}", f"attempts are 1 to {job.attempt}")
    check_not_removed(state_dir, job.id)


def _is_over(info: JobInfo, attempt: int, task: int) -> bool:
    """Whether a task writes no more in this attempt."""
    if info.attempt > attempt or JobState(info.state).ended:
        return True
    if info.attempt < attempt or task >= len(info.tasks):
        return False
    if info.kept_task is not None and info.kept_task.task == task:
        return True
    state = TaskState(info.tasks[task].state)
    return state.ended or (state is TaskState.QUEUED and info.state == JobState.QUEUED)
