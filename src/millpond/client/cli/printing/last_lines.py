"""What the task that a job failed by wrote last."""

from __future__ import annotations

import shutil
from typing import Final

import click

from millpond.client.sdk import Client
from millpond.model.errors import NotFoundError
from millpond.specs.api.jobs import JobInfo

LINES: Final = 10
_INDENT: Final = " " * 4


def last_lines(client: Client, job: JobInfo) -> list[str]:
    """What the task that a job failed by wrote last; of any other job nothing."""
    task = job.culprit or next(iter(job.tasks), None)
    if job.state != "failed" or task is None or job.attempt == 0:
        return []
    chunks = client.logs(job.id, task=task.task, attempt=job.attempt, tail=LINES)
    try:
        text = "".join(chunk.data for chunk in chunks)
    except NotFoundError:  # it was removed to make room
        return []
    return text.removesuffix("\n").split("\n")[-LINES:] if text else []


def drawn(line: str) -> str:
    """Such a line as it fits into the window, without anything that moves the cursor."""
    plain = click.unstyle(line.rstrip("\r").rpartition("\r")[2]).expandtabs()
    text = _INDENT + "".join(letter if letter.isprintable() else "?" for letter in plain)
    width = shutil.get_terminal_size().columns
    return text if len(text) <= width else f"{text[: width - 1]}…"
