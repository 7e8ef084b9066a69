"""``pond resize``: another number of tasks for an elastic job."""

from __future__ import annotations

from pathlib import Path

import click

from millpond.client.cli.connection import asks_server, connect
from millpond.client.cli.job_completion import job_argument
from millpond.client.cli.printing import formats
from millpond.model.errors import InvalidInputError


@click.command("resize")
@job_argument("job")
@click.argument("size", metavar="[ROLE=]TASKS")
@asks_server
def command(job: str, size: str, state_dir: Path | None) -> None:
    """Change the number of tasks of an elastic JOB, to 4 or worker=4, within the bounds of its job file.

    Tasks that are too many get notice and their grace period; missing ones start beside the others. 0 ends all replicas
    of a service that may go without. Of an array, all members that wait or run get that many tasks.
    """
    role, _, count = size.rpartition("=")
    if not count.isdecimal():
        raise InvalidInputError(f"{size!r} is not a number of tasks", "write for example 4, or worker=4")
    with connect(state_dir) as client:
        resized = client.resize(client.find(job).id, int(count), role)
    who = role or "it"
    if resized.array is not None:
        who = f"{role} of each member that waits or runs" if role else "each member that waits or runs"
    click.echo(f"{resized.id}: {who} is to have {formats.count(int(count), 'task')}")
