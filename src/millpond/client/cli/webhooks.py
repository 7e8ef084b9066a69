"""``pond webhooks``: what was told to other programs, and what came of it."""

from __future__ import annotations

import time
from pathlib import Path

import click

from millpond.client.cli import wording
from millpond.client.cli.connection import asks_server, connect
from millpond.client.cli.tables import Column, show
from millpond.specs.api import DeliveryList

_COLUMNS = (
    Column("ID", right=True),
    Column("WEBHOOK"),
    Column("STATE"),
    Column("AGE", right=True),
    Column("TRIES", right=True),
    Column("WHAT", gives_way=True),
)


@click.command("webhooks")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="Form of the list.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Newest to show.")
@asks_server
def command(output: str, limit: int, state_dir: Path | None) -> None:
    """List what was told to webhooks, newest first; webhooks are set up in the server's configuration."""
    with connect(state_dir) as client:
        found = client.deliveries(limit)
    if output == "json":
        click.echo(DeliveryList(deliveries=found).model_dump_json(indent=2))
        return
    if not found:
        click.echo("nothing was told to any webhook", err=True)
        return
    now = time.time()
    rows = [
        [str(one.id), one.hook, one.state, wording.span(now - one.at), str(one.tries), one.trouble or one.text]
        for one in found
    ]
    show(_COLUMNS, rows)
