"""``pond logs``: what a job wrote, so far or up to its end."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from millpond.client.cli.complaints import say
from millpond.client.cli.connection import asks_server, connect
from millpond.client.cli.following import accounts_of, leave
from millpond.client.cli.output import Output


@click.command("logs")
@click.argument("job")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended.")
@click.option("--task", type=click.IntRange(min=0), help="Only the task of this number.")
@click.option("--attempt", type=click.IntRange(min=1), help="The run of this number [default: the last].")
@asks_server
def command(job: str, follow: bool, task: int | None, attempt: int | None, state_dir: Path | None) -> None:
    """Print what JOB wrote.

    With --follow, Ctrl-C leaves the job alone, and says how to return.
    """
    with connect(state_dir) as client:
        found = client.find(job)
        output = Output(sys.stdout, labelled=task is None and len(found.tasks) > 1)
        try:
            for chunk in client.logs(found.id, task=task, attempt=attempt, follow=follow):
                output.write(chunk)
        except KeyboardInterrupt:
            if follow:
                leave(found)
            raise
        output.finish()
        if attempt is None:
            for account in accounts_of(client.job(found.id)):
                say(account)
