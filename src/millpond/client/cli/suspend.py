"""``pond suspend``: halt jobs where they are."""

from __future__ import annotations

from pathlib import Path

import click

from millpond.client.cli.acting import act_on
from millpond.client.cli.connection import asks_server
from millpond.client.sdk import Client


@click.command("suspend")
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
@asks_server
def command(jobs: tuple[str, ...], state_dir: Path | None) -> int:
    """Halt each JOB where it is.

    Its processes and its memory stay, on the card too; its share of compute is free for others until `pond resume`.
    """
    return act_on(jobs, state_dir, Client.suspend)
