"""Following a job to its end: why it waits, what it writes, and the exit code that it leaves."""

from __future__ import annotations

import sys
from collections.abc import Callable

from millpond.client.cli.error_output import say
from millpond.client.cli.printing import formats
from millpond.client.cli.printing.task_output import Output
from millpond.client.cli.printing.waiting_line import await_job
from millpond.client.cli.terminal.interrupts import held_back, silence
from millpond.client.sdk import Client
from millpond.specs.api.jobs.jobs import JobInfo, TaskInfo
from millpond.specs.api.jobs.logs import FIRST_CURSOR

STOPPED = 143
"""Exit code of a job that was stopped, as a shell shows a program that was asked to end."""

NOT_STARTED = {"queued", "starting"}


class Follower:
    """Prints one job's output; after an interruption it can go on behind what it has printed.

    Args:
        on_start: called once when the job has started.
    """

    def __init__(self, client: Client, job: JobInfo, on_start: Callable[[JobInfo], None] | None = None) -> None:
        self.job = job
        self._on_start = on_start
        self._client = client
        self._output = Output((sys.stdout, sys.stderr), labelled=len(job.tasks) > 1, raw=True)  # one's own
        self._cursor = FIRST_CURSOR

    def follow(self) -> int:
        """Print up to the job's end, or its failure where its place is kept; returns the exit code that it stands for.

        Of an array: how far it is.
        """
        if self.job.array is not None:
            return self._follow_array()
        self._await_start()
        try:
            for chunk in self._client.logs(self.job.id, follow=True, cursor=self._cursor):
                # Printed and remembered, or neither: an interruption in between would have it printed again.
                with held_back():
                    self._output.write(chunk)
                    self._cursor = chunk.cursor or self._cursor
        except KeyboardInterrupt:
            self._output.restore()
            raise
        self._output.finish()
        ended = self._client.wait(self.job.id)
        for account in accounts_of(ended):
            say(account)
        return exit_code_of(ended)

    def _follow_array(self) -> int:
        job = await_job(self._client.watch(self.job.id))
        for account in accounts_of(job):
            say(account)
        return exit_code_of(job)

    def _await_start(self) -> None:
        job = await_job(self._client.watch(self.job.id), lambda job: job.state not in NOT_STARTED)
        if self._on_start is not None:
            self._on_start(job)
            self._on_start = None


def accounts_of(job: JobInfo) -> list[str]:
    """What has to be said about the end of a job's work beyond its output and exit code, a line for each account."""
    if job.array is not None:
        return [f"{job.id}: {job.array.summary}"]
    if job.stopped_early:
        return [f"{job.id} was stopped early: {job.stopped_early}"]
    if job.state == "cancelled":
        why = job.tasks[0].detail if job.attempt == 0 and job.tasks else ""
        return [f"{job.id} was cancelled: {why}" if why else f"{job.id} was cancelled"]
    if job.settled != "failed":
        return []
    failures: dict[str, list[TaskInfo]] = {}
    for task in sorted(job.tasks, key=lambda task: not task.exit_code):
        if task.detail and (len(job.tasks) > 1 or task.detail != f"exit code {task.exit_code}"):
            failures.setdefault(task.detail, []).append(task)
    failed = [
        f"{job.id} failed: {job.naming(tasks[0]) if len(tasks) == 1 else ''}{detail}"
        for detail, tasks in failures.items()
    ]
    return [*failed, f"{job.id}: {formats.kept(job)}"] if job.is_kept else failed


def exit_code_of(job: JobInfo) -> int:
    """What a command should exit with that stands for a job whose work has ended."""
    if job.state == "succeeded":
        return 0
    if job.state == "cancelled":
        return STOPPED
    return job.exit_code or 1


def leave(job: JobInfo) -> None:
    """After Ctrl-C: say that the job goes on, and how to return to it; no further Ctrl-C is listened to."""
    silence()
    say(f"left {job.id} to itself; return to it with `pond logs -f {job.id}`")
