"""What a person sees while a job waits: one line on a terminal that says why, rewritten as the reason changes.

Without a terminal the reason is said once. A job that starts at once is not said to wait.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterable
from typing import Self, TextIO

from millpond.client.cli.printing import formats
from millpond.client.cli.printing.array_tables import where
from millpond.client.cli.printing.cell_widths import shortened
from millpond.client.cli.printing.task_lines import CLEAR_LINE
from millpond.client.sdk.resources.jobs import ENDED
from millpond.specs.api.jobs.jobs import JobInfo

PATIENCE_S = 0.5
"""Shorter waits are not worth a word."""


class WaitingLine:
    """The line that says why a job has not started; gone when the block ends.

    Args:
        stream: where to, usually standard error.
        interactive: whether it is a terminal, on which the line is rewritten.
    """

    def __init__(self, stream: TextIO, interactive: bool) -> None:
        self._stream = stream
        self._interactive = interactive
        self._said = False
        self._first_seen_at: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._interactive and self._said:
            self._stream.write(CLEAR_LINE)
            self._stream.flush()

    def show(self, job: JobInfo, now: float) -> None:
        """Say how the job stands at ``now``."""
        if self._first_seen_at is None:
            self._first_seen_at = now
        about = job.reason if job.array is None else where(job)
        if not about or job.state in ENDED or now - self._first_seen_at < PATIENCE_S:
            return
        if self._interactive:
            waited = formats.span(now - job.submitted_at)
            width = shutil.get_terminal_size().columns - 1
            text = f"{job.state} for {waited}: {about}"
            self._stream.write(CLEAR_LINE + shortened(text, width))
        elif not self._said and job.state == "queued":
            self._stream.write(f"pond: {job.id} waits: {about}\n")
        else:
            return
        self._said = True
        self._stream.flush()


def await_job(watched: Iterable[JobInfo], is_over: Callable[[JobInfo], bool] = lambda job: False) -> JobInfo:
    """Say why a job waits, up to where ``is_over`` is true of it, or to its end; returns it as it is then.

    Args:
        watched: the job as it is, again and again (``Client.watch``).
    """
    with WaitingLine(sys.stderr, interactive=sys.stderr.isatty()) as line:
        for job in watched:
            if is_over(job):
                break
            line.show(job, time.time())
    return job
