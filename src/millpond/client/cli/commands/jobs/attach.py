"""``pond attach``: a shell where a task runs."""

from __future__ import annotations

from pathlib import Path

import click

from millpond.client.cli import terminal
from millpond.client.cli.commands.jobs.exec import run_beside, task_option
from millpond.client.cli.connection import asks_server
from millpond.client.cli.job_completion import job_argument
from millpond.model.errors import InvalidInputError

SHELL = ("/bin/sh", "-c", 'exec "${SHELL:-/bin/sh}" -i')


@click.command("attach")
@job_argument("job", metavar="JOB")
@task_option
@asks_server
def command(job: str, task: int, state_dir: Path | None) -> int:
    """Open a shell in a task of JOB, in its directory and with its variables and cards.

    Leaving the shell leaves the job alone.
    """
    if not terminal.is_terminal():
        raise InvalidInputError("this is no terminal", f"use pond exec {job} -- COMMAND")
    return run_beside(state_dir, job, task, SHELL, tty=True, reads_input=True)
