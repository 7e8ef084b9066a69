"""``pond resize``: another number of tasks for an elastic job."""

from __future__ import annotations

import click

from millpond.client.cli.connection import job_argument, with_client
from millpond.client.sdk import Client
from millpond.model.amounts import count_text
from millpond.model.errors import InvalidInputError


def _size(_context: click.Context, _argument: click.Parameter, text: str) -> tuple[str, int]:
    """A role, empty where none is named, and a number of tasks."""
    role, _, count = text.rpartition("=")
    if not count.isdecimal():
        raise InvalidInputError(f"{text!r} is not a number of tasks", "write for example 4, or worker=4")
    return role, int(count)


@click.command("resize")
@job_argument("job")
@click.argument("size", metavar="[ROLE=]TASKS", callback=_size)
@with_client
def command(client: Client, job: str, size: tuple[str, int]) -> None:
    """Change the number of tasks of an elastic JOB, to 4 or worker=4, within the bounds of its job file.

    Tasks that are too many get notice and their grace period; missing ones start beside the others. 0 ends all replicas
    of a service that may go without. Of an array, all members that wait or run get that many tasks.
    """
    role, tasks = size
    resized = client.resize(client.find(job).id, tasks, role)
    who = role or "it"
    if resized.array is not None:
        who = f"{role} of each member that waits or runs" if role else "each member that waits or runs"
    click.echo(f"{resized.id}: {who} is to have {count_text(tasks, 'task')}")
