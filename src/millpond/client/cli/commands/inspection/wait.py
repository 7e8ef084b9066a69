"""``pond wait``: the end of jobs, for scripts."""

from __future__ import annotations

from pathlib import Path

import click

from millpond.client.cli.connection import connect, job_argument, state_dir_option
from millpond.client.cli.error_output import say
from millpond.client.cli.follow import exit_code_of
from millpond.client.cli.printing import formats
from millpond.client.cli.printing.array_tables import best_text


@click.command("wait")
@job_argument("jobs", nargs=-1, required=True, metavar="JOB...")
@state_dir_option
def command(jobs: tuple[str, ...], state_dir: Path | None) -> int:
    """Wait until each JOB has ended; exit with the exit code of the first named that did not succeed, or 0.

    One that has failed is not waited for while its place is kept. Of a sweep, print the best trial.
    """
    code = 0
    with connect(state_dir) as client:
        for name in [client.find(job).id for job in jobs]:
            ended = client.wait(name)
            click.echo(f"{ended.id}: {ended.settled}")
            if ended.is_kept:
                say(f"{ended.id}: {formats.kept(ended)}")
            if ended.array is not None and ended.array.sweep and (best := best_text(client.trials(ended.id, 1))):
                say(f"the best is {best}")
            code = code or exit_code_of(ended)
    return code
