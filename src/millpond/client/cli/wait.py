"""``pond wait``: the end of a job, for scripts."""

from __future__ import annotations

from pathlib import Path

import click

from millpond.client.cli.connection import asks_server, connect
from millpond.client.cli.following import exit_code_of


@click.command("wait")
@click.argument("job")
@asks_server
def command(job: str, state_dir: Path | None) -> int:
    """Wait until JOB has ended; exit with its exit code."""
    with connect(state_dir) as client:
        ended = client.wait(client.find(job).id)
    click.echo(f"{ended.id}: {ended.state}")
    return exit_code_of(ended)
