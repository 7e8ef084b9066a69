"""``pond webhooks``: deliveries to other programs and to users, and their results; and a test message."""

from __future__ import annotations

import time

import click

from millpond.client.cli.command_suggestions import SuggestingGroup
from millpond.client.cli.connection import with_client
from millpond.client.cli.error_output import say
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


_PATIENCE_S = 60.0
"""A receiver has ten seconds to answer, and others that do not answer may be asked before it."""
_LOOK_EVERY_S = 0.1


@click.group("webhooks", cls=SuggestingGroup, invoke_without_command=True)
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Newest to show.")
@lists()
def group(client: Client, limit: int) -> Listing:
    """List deliveries to webhooks and users, newest first.

    Webhooks are set up in the server's configuration; users choose what they are told of with `pond notify`.
    """
    found = client.deliveries(limit)
    return Listing.of(DeliveryList(deliveries=found), found, _TABLE, empty="no deliveries")


@group.command("test")
@click.argument("name")
@with_client
def test(client: Client, name: str) -> int:
    """Send a test message to the webhook NAME of the configuration, and wait for what comes of it.

    It is sent once, signed as all others, and says that it is a test. Exits with 1 if the receiver does not take it.
    """
    delivery = client.test_webhook(name)
    give_up = time.monotonic() + _PATIENCE_S
    while delivery.state == "waiting" and time.monotonic() < give_up:
        time.sleep(_LOOK_EVERY_S)
        delivery = client.delivery(delivery.id)
    match delivery.state:
        case "delivered":
            click.echo(f"delivered to {name}")
            return 0
        case "waiting":
            say(f"delivery {delivery.id} to {name} has not been sent yet; `pond webhooks` shows what comes of it")
        case _:
            say(f"{name} did not take it: {delivery.trouble}")
    return 1
