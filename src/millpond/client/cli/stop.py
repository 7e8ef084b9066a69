"""``pond stop``: end jobs, with notice and grace."""

from __future__ import annotations

from pathlib import Path

import click

from millpond.client.cli.complaints import complain
from millpond.client.cli.connection import asks_server, connect
from millpond.model.errors import ConflictError, NotFoundError


@click.command("stop")
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
@asks_server
def command(jobs: tuple[str, ...], state_dir: Path | None) -> int:
    """End each JOB: notice first, force after its grace period."""
    code = 0
    with connect(state_dir) as client:
        for name in jobs:
            try:
                job = client.stop(client.find(name).id)
            except (NotFoundError, ConflictError) as error:
                complain(error)
                code = error.exit_code
                continue
            click.echo(f"{job.id}: {job.state}")
    return code
