"""Standard input of tasks as it comes from clients, piece by piece, each at its offset.

A piece that is repeated, as its answer was lost, is taken once. A task that reads slowly makes the request wait for a
while, and its client with it. How far a task's input is stands in a file that outlives the server
(``node.task.input``).

Input whose sender is gone is ended: else a task that reads it would wait, and hold its cards, for ever. A client that
is cut off looks for its server for two minutes, and then goes on where it was, so a sender that has been silent for
much longer (``SILENT_S``) does not come back.
"""

from __future__ import annotations

import asyncio
import errno
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from millpond.model.amounts import seconds_text
from millpond.model.errors import ConflictError, UnavailableError
from millpond.model.states import JobState
from millpond.node.host.clocks import MonotonicClock
from millpond.node.task import runner
from millpond.node.task.input import InputRing
from millpond.node.task.records import TaskFiles, TaskId, read_record
from millpond.server.runtime.loop import Loop
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.api.jobs.requests import InputInfo

WAIT_S: Final = 5.0
SILENT_S: Final = 600.0
"""A sender that has not been heard of for so long is gone: five times as long as clients look for a lost server."""
LOOK_EVERY_S: Final = 30.0
"""Between two calls of ``end_silent``."""
_FIRST_LOOK_S: Final = 0.005
_LONGEST_LOOK_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class InputPiece:
    """A piece of standard input.

    Attributes:
        attempt: the run that it is for.
        offset: where it stands in all of the input.
        end: nothing comes after it.
    """

    attempt: int
    offset: int
    data: bytes
    end: bool


class TaskInputs:
    """Takes standard input for tasks.

    Args:
        live: a job that has not ended; does not block.
        closing: set when the server is about to stop, so that no request waits for room any longer.
    """

    def __init__(
        self,
        state_dir: Path,
        live: Callable[[str], JobInfo | None],
        closing: threading.Event,
        clock: MonotonicClock = time.monotonic,
    ) -> None:
        self._state_dir = state_dir
        self._live = live
        self._closing = closing
        self._clock = clock
        self._heard_at: dict[TaskId, float] = {}

    async def receive(self, job: JobInfo, piece: InputPiece) -> InputInfo:
        """Take as much of a piece as there is room for by now or in a moment.

        Raises:
            ConflictError: the job reads no standard input, or does not run yet, or lacks what stands before the piece,
                or its input has ended before it.
            UnavailableError: the disk is full.
        """
        if JobState(job.state).ended or job.attempt != piece.attempt:
            return InputInfo(received=piece.offset, open=False)
        run = TaskId(job.id, job.attempt, 0)
        self._heard_at[run] = self._clock()
        task = TaskFiles.of(self._state_dir, run)
        try:
            ring = InputRing(task.input)
        except FileNotFoundError as error:
            raise self._without_input(job) from error
        with ring:
            if piece.offset > ring.received:
                raise ConflictError(
                    f"byte {piece.offset} of standard input comes before byte {ring.received}",
                    "go on where it ended",
                )
            if ring.ended and not (piece.end and piece.offset + len(piece.data) == ring.received):
                raise ConflictError(
                    f"the standard input of job {job.id} has ended at byte {ring.received}",
                    "submit the job again; a sender of input is heard of every ten minutes, if with an empty piece",
                )
            return await self._put(job.id, task, ring, piece)

    def end_silent(self, jobs: Iterable[JobInfo]) -> list[str]:
        """End the standard input of running jobs whose sender has not been heard of for ``SILENT_S``; returns them.

        Before its first piece, and after a start of the server, the time counts from the first call on.

        Raises:
            OSError: what is known of a task's input cannot be read or written.
        """
        now, ended, waiting = self._clock(), [], set()
        for job in jobs:
            run = TaskId(job.id, job.attempt, 0)
            task = TaskFiles.of(self._state_dir, run)
            if job.state not in (JobState.RUNNING, JobState.SUSPENDED) or not task.input.exists():
                continue
            with InputRing(task.input) as ring:
                if ring.ended or ring.closed:
                    continue
                waiting.add(run)
                if now < self._heard_at.setdefault(run, now) + SILENT_S:
                    continue
                ring.end()
            ended.append(job.id)
            if (record := read_record(task)) is not None:
                runner.wake(record)
        for run in self._heard_at.keys() - waiting:
            del self._heard_at[run]
        return ended

    async def _put(self, job: str, task: TaskFiles, ring: InputRing, piece: InputPiece) -> InputInfo:
        loop = asyncio.get_running_loop()
        give_up_at, pause_s = loop.time() + WAIT_S, _FIRST_LOOK_S
        while True:
            if ring.closed or self._live(job) is None:
                return InputInfo(received=ring.received, open=False)
            # Asked anew each time: the same piece may come twice at once, after its answer was lost.
            rest = piece.data[ring.received - piece.offset :] if ring.received >= piece.offset else b""
            is_first = not ring.received
            try:
                taken = ring.put(rest)
                if is_first and taken:  # before the task has it: no later run may take it for the first
                    await asyncio.to_thread(ring.keep)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                raise UnavailableError("the disk is full: no standard input is taken", "try again later") from error
            whole = taken == len(rest)
            if whole and piece.end:
                ring.end()
            record = read_record(task) if taken or piece.end else None
            if record is not None:
                runner.wake(record)
            if whole or self._closing.is_set() or loop.time() >= give_up_at:
                return InputInfo(received=ring.received, open=not ring.ended)
            pause_s = _FIRST_LOOK_S if taken else min(pause_s * 2, _LONGEST_LOOK_S)
            await asyncio.sleep(pause_s)

    def _without_input(self, job: JobInfo) -> ConflictError:
        if job.state in (JobState.QUEUED, JobState.STARTING):
            return ConflictError(f"job {job.id} has not started", "send its input when it runs")
        return ConflictError(f"job {job.id} reads no standard input", "submit it with `stdin: true`")


def end_silent(loop: Loop, inputs: TaskInputs) -> None:
    """End the standard input of jobs whose sender is gone, and note it in their histories.

    Raises:
        OSError: what is known of a task's input cannot be read or written.
    """
    for job in inputs.end_silent(loop.job_cache.newest_first()):
        text = f"its standard input was ended: its sender was not heard of for {seconds_text(SILENT_S)}"
        loop.note(job, text)
