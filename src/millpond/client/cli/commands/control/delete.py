"""``pond delete``: ended jobs and all that they wrote, dropped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import click

from millpond.client.cli.bulk_actions import confirmed, require_attended
from millpond.client.cli.connection import asks_server, connect
from millpond.client.cli.error_output import complain
from millpond.client.cli.job_completion import job_argument
from millpond.client.cli.printing import formats
from millpond.model.errors import ConflictError, NotFoundError
from millpond.specs.api.jobs import JobInfo


@click.command("delete")
@job_argument("jobs", nargs=-1, required=True, metavar="JOB...")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@asks_server
def command(jobs: tuple[str, ...], yes: bool, state_dir: Path | None) -> int:
    """Delete each JOB, which must have ended, with its history, logs and output. Its usage is kept."""
    require_attended("delete", yes)
    with connect(state_dir) as client:
        found, code = _each(jobs, client.find)
        names = [job.id for job in found]
        question = f"Delete {', '.join(names)}: {formats.count(len(names), 'job')} and all that they wrote?"
        if not names or not confirmed(question, yes):
            return code or 1
        deleted, failed = _each(names, client.delete)
    for job in deleted:
        click.echo(f"{job.id}: deleted")
    return failed or code


def _each(names: Sequence[str], act: Callable[[str], JobInfo]) -> tuple[list[JobInfo], int]:
    """Do it for each; what fails for one is said. The answers, and the exit code of the last failure or 0."""
    done, code = [], 0
    for name in names:
        try:
            done.append(act(name))
        except (NotFoundError, ConflictError) as error:
            complain(error)
            code = error.exit_code
    return done, code
