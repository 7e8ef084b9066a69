"""``pond queue``: queues, what each is guaranteed and may not exceed, what it holds, and what is lent."""

from __future__ import annotations

from functools import partial

import click

from millpond.client.cli.command_suggestions import NamingGroup
from millpond.client.cli.commands.cluster.queue_edits import add, change, delete
from millpond.client.cli.commands.cluster.queue_view import draw_queue, draw_queues
from millpond.client.cli.printing.listing import Listing, lists
from millpond.client.sdk import Client
from millpond.specs.api.pool.queues import QueueList


@click.group("queue", cls=NamingGroup, named="show", invoke_without_command=True)
@lists()
def group(client: Client) -> Listing:
    """Show queues with what each is guaranteed, holds and lends, or QUEUE in detail; add, set and delete them."""
    return _all_queues(client)


for _edit in (add, change, delete):
    group.add_command(_edit)


@group.command("show")
@click.argument("queue", default="", metavar="[QUEUE]")
@lists()
def show_queues(client: Client, queue: str) -> Listing:
    """List the queues of your groups (admins: all), or show QUEUE in detail. Each counts those below it."""
    if queue:
        detail = client.queue(queue)
        return Listing(detail, [detail.queue.name], partial(draw_queue, detail))
    return _all_queues(client)


def _all_queues(client: Client) -> Listing:
    found = client.queues()
    return Listing(QueueList(queues=found), [each.name for each in found], partial(draw_queues, found))
