"""``pond delete``: ended jobs and all that they wrote, dropped."""

from __future__ import annotations

from pathlib import Path

import click

from millpond.client.cli.connection import (
    confirmed,
    connect,
    for_each,
    job_argument,
    require_attended,
    state_dir_option,
)
from millpond.model.amounts import count_text


@click.command("delete")
@job_argument("jobs", nargs=-1, required=True, metavar="JOB...")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@state_dir_option
def command(jobs: tuple[str, ...], yes: bool, state_dir: Path | None) -> int:
    """Delete each JOB, which must have ended, with its history, logs and output. Its usage is kept."""
    require_attended("add -y to delete them", yes)
    with connect(state_dir) as client:
        names: list[str] = []
        code = for_each(jobs, lambda job: names.append(client.find(job, unambiguous=True).id))
        question = f"Delete {', '.join(names)}: {count_text(len(names), 'job')} and all that they wrote?"
        if not names or not confirmed(question, yes):
            return code or 1
        return for_each(names, lambda job: click.echo(f"{client.delete(job).id}: deleted")) or code
