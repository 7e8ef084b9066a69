"""``pond stop``: end jobs, with notice and grace: those that are named, or all that something is true of."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from millpond.client.cli.connection import (
    act_on,
    choosing_option,
    confirmed,
    connect,
    job_argument,
    require_attended,
    state_dir_option,
)
from millpond.client.sdk import Client
from millpond.client.sdk.resources.jobs import MOST_JOBS
from millpond.model.amounts import count_text
from millpond.model.errors import InvalidInputError

_NAMED_IN_QUESTION: Final = 5


@click.command("stop")
@job_argument("jobs", nargs=-1, metavar="[JOB...]")
@click.option("--all", "everything", is_flag=True, help="All jobs of yours that wait or run.")
@choosing_option("--name", help="All of these of this name; * stands for any letters, ? for one.")
@choosing_option("--queue", metavar="NAME", help="All of these in this queue.")
@choosing_option("--user", metavar="NAME", help="Those of this user instead of yours.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@state_dir_option
def command(
    jobs: tuple[str, ...], everything: bool, name: str, queue: str, user: str, yes: bool, state_dir: Path | None
) -> int:
    """End each JOB, or all jobs that the options name: notice first, force after its grace period.

    The options ask first, and leave alone what one may not end.
    """
    chosen = everything or bool(name or queue or user)
    if chosen == bool(jobs):
        raise InvalidInputError(
            "which jobs are to end" if not jobs else "both jobs and options that choose jobs",
            "name jobs, or use --all, --name, --queue or --user",
        )
    if chosen:
        require_attended("add -y to end them", yes)
    with connect(state_dir) as client:
        if not chosen:
            return act_on(client, jobs, Client.stop)
        whose = user or client.accounts.whoami().user
        found = client.jobs(limit=MOST_JOBS, user=whose, queue=queue, name=name).jobs
        names = [job.id for job in found if job.state != "stopping"]
        if not names:
            click.echo("no such jobs wait or run", err=True)
            return 0
        some = ", ".join(names[:_NAMED_IN_QUESTION]) + (", …" if len(names) > _NAMED_IN_QUESTION else "")
        if not confirmed(f"End {count_text(len(names), 'job')} of {whose} ({some})?", yes):
            return 1
        return act_on(client, names, Client.stop)
