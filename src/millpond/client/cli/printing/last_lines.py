"""What the task that a job failed by wrote last, as it fits below what is said of the job."""

from __future__ import annotations

import shutil

import click

from millpond.client.cli.printing.cell_widths import shortened
from millpond.client.sdk import Client
from millpond.model.errors import NotFoundError
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.escaped_text import visible

_COUNT = 10


def failed_member(client: Client, job: JobInfo) -> JobInfo | None:
    """Of an array that failed, the first of its members that did; of any other job none."""
    if job.array is None or job.state != "failed":
        return None
    return next(iter(client.jobs(ended=True, limit=1, members_of=job.id, state="failed").jobs), None)


def last_lines(client: Client, job: JobInfo) -> list[str]:
    """The last lines of the task that a job failed by; of any other job nothing."""
    task = job.culprit or next(iter(job.tasks), None)
    if job.state != "failed" or task is None or job.attempt == 0:
        return []
    chunks = client.logs(job.id, task=task.task, attempt=job.attempt, tail=_COUNT)
    try:
        text = "".join(chunk.data for chunk in chunks)
    except NotFoundError:  # it was removed to make room
        return []
    return text.removesuffix("\n").split("\n")[-_COUNT:] if text else []


def drawn(line: str) -> str:
    """Such a line as it fits into the window, without anything that moves the cursor."""
    plain = click.unstyle(line.rstrip("\r").rpartition("\r")[2]).expandtabs()
    return shortened(" " * 4 + visible(plain), shutil.get_terminal_size().columns)
