"""``pond stop``: end jobs, with notice and grace."""

from __future__ import annotations

from pathlib import Path

import click

from millpond.client.cli.acting import act_on
from millpond.client.cli.connection import asks_server
from millpond.client.sdk import Client


@click.command("stop")
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
@asks_server
def command(jobs: tuple[str, ...], state_dir: Path | None) -> int:
    """End each JOB: notice first, force after its grace period."""
    return act_on(jobs, state_dir, Client.stop)
