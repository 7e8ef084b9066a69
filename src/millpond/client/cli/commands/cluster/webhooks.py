"""``pond webhooks``: which other programs are notified, and deliveries to them and to users with their results."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, get_args

import click

from millpond.client.cli.command_suggestions import SuggestingGroup
from millpond.client.cli.connection import connect, state_dir_option, with_client
from millpond.client.cli.error_output import say
from millpond.client.cli.printing import formats
from millpond.client.cli.printing.listing import Column, Listing, ListTable, lists
from millpond.client.cli.terminal.secret_input import SecretInput, from_stdin
from millpond.client.sdk import Client
from millpond.node.host.late_calls import called_if_late
from millpond.specs.api.events import DeliveryInfo, DeliveryList
from millpond.specs.api.webhooks import WebhookInfo, WebhookList
from millpond.specs.config.webhooks import ChatFormat, Topic


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


_FORMATS, _TOPICS = click.Choice(get_args(ChatFormat)), click.Choice(get_args(Topic))
_HOOKS: ListTable[WebhookInfo] = ListTable(
    (
        Column("NAME", lambda hook: hook.name),
        Column("ADDRESS", lambda hook: hook.url),
        Column("FORMAT", lambda hook: hook.format),
        Column("EVENTS", lambda hook: ", ".join(hook.on), wraps=True),
        Column("QUEUES", lambda hook: ", ".join(hook.queues) or "all", gives_way=True),
        Column("FROM", lambda hook: "configuration" if hook.in_file else hook.by),
    ),
)


_PATIENCE_S = 60.0
"""A receiver has ten seconds to answer, and others that do not answer may be asked before it."""
_LOOK_EVERY_S = 0.1
_SILENT_S = 2.0
"""Then it is said what is waited for."""


@click.group("webhooks", cls=SuggestingGroup, invoke_without_command=True)
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Newest to show.")
@lists()
def group(client: Client, limit: int) -> Listing:
    """List deliveries to webhooks and users, newest first.

    Webhooks are set up in the server's configuration, or added here; users choose what they are told of with
    `pond notify`.
    """
    found = client.webhooks.deliveries(limit)
    return Listing.of(DeliveryList(deliveries=found), found, _TABLE, empty="no deliveries")


@group.command("ls")
@lists()
def ls(client: Client) -> Listing:
    """List the webhooks, those of the server's configuration first; addresses end at their hosts."""
    found = client.webhooks.all()
    return Listing.of(WebhookList(webhooks=found), found, _HOOKS, empty="no webhooks; `pond webhooks add` adds one")


@group.command("add")
@click.argument("name")
@click.option("--format", type=_FORMATS, default="millpond", show_default=True, help="Of messages.")
@click.option(
    "--on",
    multiple=True,
    type=_TOPICS,
    metavar="EVENT",
    help=f"Of this event: {', '.join(_TOPICS.choices)}; repeatable [default: of all].",
)
@click.option("--queue", "queues", multiple=True, help="Of jobs of this queue alone; repeatable [default: of all].")
@click.option("--secret", default="", help="The server's secret that signs deliveries [default: none does].")
@from_stdin
@state_dir_option
def add(name: str, stdin: bool, state_dir: Path | None, **fields: Any) -> None:
    """Add the webhook NAME; its address is asked for, and kept as a secret."""
    with connect(state_dir) as client:
        client.webhooks.add(name, SecretInput(stdin).ask("address of the webhook"), **fields)
    click.echo(f"added; try it with `pond webhooks test {name}`")


@group.command("rm")
@click.argument("name")
@with_client
def rm(client: Client, name: str) -> None:
    """Remove the webhook NAME that was added; what waits for it is given up."""
    client.webhooks.remove(name)
    click.echo(name)


@group.command("test")
@click.argument("name")
@with_client
def test(client: Client, name: str) -> int:
    """Send a test message to the webhook NAME, and wait for what comes of it.

    It is sent once, signed as all others, and says that it is a test. Exits with 1 if the receiver does not take it.
    """
    delivery = client.webhooks.test(name)
    give_up = time.monotonic() + _PATIENCE_S
    with called_if_late(_SILENT_S, lambda: say(f"waiting for {name} to answer, up to {_PATIENCE_S:g} s")):
        while delivery.state == "waiting" and time.monotonic() < give_up:
            time.sleep(_LOOK_EVERY_S)
            delivery = client.webhooks.delivery(delivery.id)
    match delivery.state:
        case "delivered":
            click.echo(f"delivered to {name}")
            return 0
        case "waiting":
            say(f"delivery {delivery.id} to {name} has not been sent yet; `pond webhooks` shows what comes of it")
        case _:
            say(f"{name} did not take it: {delivery.trouble}")
    return 1
