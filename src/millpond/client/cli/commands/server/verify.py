"""``pond verify``: whether the scheduler decides again what the log of a server says it decided."""

from __future__ import annotations

from pathlib import Path

import click

from millpond.client.cli.connection import state_dir_option
from millpond.client.sdk import default_state_dir
from millpond.model.amounts import count_text


@click.command("verify")
@click.option(
    "--store",
    metavar="URL",
    default="",
    help="PostgreSQL database of the server; none: SQLite [default: as at its last start].",
)
@state_dir_option
def command(store: str, state_dir: Path | None) -> int:
    """Check the log of a server that is down: decide again, and compare.

    Exits with 1 at a difference. That is a defect if this version wrote the log, and to be expected if another one did.
    """
    from millpond.server.operations.verification import verify_state
    from millpond.server.startup.options import store_of
    from millpond.server.version import VERSION

    directory = state_dir or default_state_dir()
    found = verify_state(directory, store_of(directory, store))
    for difference in found.differences:
        click.echo(difference)
    others = ", ".join(version for version in found.versions if version != VERSION)
    if found.differences:
        why = f"version {others} wrote it, and may decide otherwise" if others else "this is a defect of Millpond"
        click.echo(f"the log does not lead to the stored decisions: {why}")
        return 1
    click.echo(f"the log leads to the stored decisions: {count_text(found.decisions, 'decision')} taken again alike")
    return 0
