"""``pond webhooks``: what was told to other programs, and what came of it."""

from __future__ import annotations

import time
from pathlib import Path

import click

from millpond.client.cli import wording
from millpond.client.cli.connection import asks_server, connect
from millpond.client.cli.listing import Listing, listing_options, show_listing
from millpond.client.cli.tables import Column, show
from millpond.specs.api.events import DeliveryInfo, DeliveryList

_COLUMNS = (
    Column("ID", right=True),
    Column("WEBHOOK"),
    Column("STATE"),
    Column("AGE", right=True),
    Column("TRIES", right=True),
    Column("WHAT", gives_way=True),
)


@click.command("webhooks")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Newest to show.")
@listing_options
@asks_server
def command(limit: int, output: str, watch: bool, state_dir: Path | None) -> None:
    """List webhook deliveries, newest first; webhooks are set up in the server's configuration."""
    with connect(state_dir) as client:

        def look() -> Listing:
            found = client.deliveries(limit)
            names = [str(one.id) for one in found]
            return Listing(DeliveryList(deliveries=found), names, lambda wide: _draw(found, wide))

        show_listing(look, output, watch)


def _draw(found: list[DeliveryInfo], wide: bool) -> None:
    if not found:
        click.echo("nothing was told to any webhook", err=True)
        return
    now = time.time()
    rows = [
        [str(one.id), one.hook, one.state, wording.span(now - one.at), str(one.tries), one.trouble or one.text]
        for one in found
    ]
    show(_COLUMNS, rows, fitted=not wide)
