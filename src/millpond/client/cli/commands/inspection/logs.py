"""``pond logs``: what a job wrote, so far or up to its end."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from millpond.client.cli.connection import connect, job_argument, state_dir_option
from millpond.client.cli.error_output import say
from millpond.client.cli.follow import NOT_STARTED, accounts_of, leave
from millpond.client.cli.printing.task_output import Output
from millpond.client.cli.printing.waiting_line import await_job
from millpond.client.cli.time_options import parse_past
from millpond.client.sdk.resources.jobs import require_known


@click.command("logs")
@job_argument("job")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended.")
@click.option("--task", type=click.IntRange(min=0), help="Only the task of this number.")
@click.option("--attempt", type=click.IntRange(min=1), help="The run of this number [default: the last].")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N lines of each task.")
@click.option("--since", metavar="TIME", help="Only the last so long (such as 10m), or since 2026-01-31T08:00.")
@click.option("--timestamps", is_flag=True, help="Begin each line with when it was written.")
@click.option("--raw", is_flag=True, help="To a terminal too, exactly what was written.")
@state_dir_option
def command(
    job: str,
    follow: bool,
    task: int | None,
    attempt: int | None,
    tail: int | None,
    since: str | None,
    timestamps: bool,
    raw: bool,
    state_dir: Path | None,
) -> None:
    """Print what JOB wrote: standard output to standard output, standard error to standard error.

    With --follow, a line says why a job has not started yet. Ctrl-C leaves the job alone, and says how to return.

    A terminal is shown colours, and nothing else that would steer it, such as a move of the cursor or another title.
    A file or a pipe gets what was written, and so does a terminal with --raw.
    """
    start = None if since is None else parse_past(since, "--since", time.time())
    with connect(state_dir) as client:
        found = client.find(job)
        labelled = task is None and len(found.tasks) > 1
        output = Output((sys.stdout, sys.stderr), labelled, timestamps, raw=raw)
        try:
            if follow and found.state == "queued" and found.attempt == 0 and found.array is None:
                await_job(client.watch(found.id), lambda seen: seen.state not in NOT_STARTED)
            for chunk in client.logs(
                found.id,
                task=task,
                attempt=attempt,
                follow=follow and not found.apart,
                tail=tail,
                since=start,
                timestamps=timestamps,
            ):
                output.write(chunk)
        except KeyboardInterrupt:
            output.restore()
            if follow:
                leave(found)
            raise
        output.finish()
        if follow:
            require_known(found)
        if attempt is None:
            for account in accounts_of(client.job(found.id)):
                say(account)
