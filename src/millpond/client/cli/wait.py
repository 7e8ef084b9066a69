"""``pond wait``: the end of a job, for scripts."""

from __future__ import annotations

from pathlib import Path

import click

from millpond.client.cli.arrays import best_text
from millpond.client.cli.complaints import say
from millpond.client.cli.connection import asks_server, connect
from millpond.client.cli.following import exit_code_of


@click.command("wait")
@click.argument("job")
@asks_server
def command(job: str, state_dir: Path | None) -> int:
    """Wait until JOB has ended; exit with its exit code. Of a sweep, tell the best trial."""
    with connect(state_dir) as client:
        ended = client.wait(client.find(job).id)
        click.echo(f"{ended.id}: {ended.state}")
        if ended.array is not None and ended.array.sweep and (best := best_text(client.trials(ended.id, 1))):
            say(f"the best is {best}")
    return exit_code_of(ended)
