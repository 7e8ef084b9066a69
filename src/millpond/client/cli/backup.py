"""``pond backup`` and ``pond restore``: a state directory as one file, and back."""

from __future__ import annotations

import time
from pathlib import Path

import click

from millpond.client.cli import wording
from millpond.client.cli.connection import state_dir_option
from millpond.client.sdk import default_state_dir


@click.command("backup")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--only-database", is_flag=True, help="Leave out what jobs wrote.")
@state_dir_option
def backup(file: Path, only_database: bool, state_dir: Path | None) -> None:
    """Write everything the server remembers to FILE; it may be running meanwhile."""
    from millpond.server.operating.backup import back_up

    summary = back_up(state_dir or default_state_dir(), file, time.time(), jobs=not only_database)
    click.echo(f"{wording.count(summary.files, 'file')}, {summary.size_bytes / 2**20:.1f} MiB in {file}")


@click.command("restore")
@click.argument("file", type=click.Path(path_type=Path))
@state_dir_option
def restore(file: Path, state_dir: Path | None) -> None:
    """Put what FILE holds into an empty state directory, for `pond up` to go on from there."""
    from millpond.server.operating.backup import restore as put_back

    directory = state_dir or default_state_dir()
    summary = put_back(file, directory)
    click.echo(f"{wording.count(summary.files, 'file')} of Millpond {summary.version} in {directory}")
    click.echo(f"go on with `pond up --state-dir {directory}`")
