"""``pond webhooks``: deliveries to other programs and to users, and their results."""

from __future__ import annotations

import click

from millpond.client.cli.printing import formats
from millpond.client.cli.printing.listing import Listing, lists
from millpond.client.cli.printing.tables import Column, ListTable
from millpond.client.sdk import Client
from millpond.specs.api.events import DeliveryInfo, DeliveryList


def _receiver(delivery: DeliveryInfo) -> str:
    """The name of a webhook, or by what a user is told."""
    return delivery.hook if delivery.channel == "webhook" else f"{delivery.hook} ({delivery.channel})"


_TABLE: ListTable[DeliveryInfo] = ListTable(
    (
        Column("ID", lambda delivery: str(delivery.id), right=True),
        Column("TO", _receiver),
        Column("STATE", lambda delivery: delivery.state),
        Column("AGE", lambda delivery: formats.age(delivery.at), right=True),
        Column("TRIES", lambda delivery: str(delivery.tries), right=True),
        Column("WHAT", lambda delivery: delivery.trouble or delivery.text, wraps=True),
    ),
)


@click.command("webhooks")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Newest to show.")
@lists()
def command(client: Client, limit: int) -> Listing:
    """List deliveries to webhooks and users, newest first.

    Webhooks are set up in the server's configuration; users choose what they are told of with `pond notify`.
    """
    found = client.deliveries(limit)
    return Listing.of(DeliveryList(deliveries=found), found, _TABLE, empty="no deliveries")
