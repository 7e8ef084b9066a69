"""``pond nodes cordon, drain, maintain, uncordon``: machines that take no new work for a while."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from millpond.client.cli.bulk_actions import for_each
from millpond.client.cli.connection import with_client
from millpond.client.cli.printing.formats import machine_state
from millpond.client.cli.time_options import WRITTEN, future
from millpond.client.sdk import Client
from millpond.specs.api.nodes import NodeInfo

_machines = click.argument("names", nargs=-1, required=True, metavar="NODE...")
_reason = click.option("--reason", default="", metavar="TEXT", help="Why, for those whose jobs wait.")


def _until(required: bool = False) -> Callable[..., Any]:
    text = f"When it opens by itself: {WRITTEN}" + ("." if required else " [default: on `uncordon`].")
    return click.option("--until", metavar="WHEN", required=required, callback=future, help=text)


@click.command("cordon")
@_machines
@_reason
@_until()
@with_client
def cordon(client: Client, names: tuple[str, ...], reason: str, until: float | None) -> int:
    """Start nothing new on each NODE; running work goes on."""
    return _change(client, names, lambda client, name: client.close_node(name, reason=reason, until=until))


@click.command("drain")
@_machines
@_reason
@_until()
@with_client
def drain(client: Client, names: tuple[str, ...], reason: str, until: float | None) -> int:
    """Empty each NODE: nothing new starts there, and preemptible work leaves.

    It gets notice and its grace period, and runs again from its queue. Other work may go on to its end.
    """
    return _change(client, names, lambda client, name: client.close_node(name, reason=reason, until=until, drain=True))


@click.command("maintain")
@_machines
@_reason
@click.option(
    "--from",
    "begin",
    metavar="WHEN",
    required=True,
    is_eager=True,
    callback=future,
    help=f"When it is emptied: {WRITTEN}.",
)
@_until(required=True)
@with_client
def maintain(client: Client, names: tuple[str, ...], reason: str, begin: float, until: float) -> int:
    """Plan to empty each NODE.

    Work that is known to run into that time does not start there from now on, unless it may be preempted and saves
    itself on notice.
    """
    return _change(client, names, lambda client, name: client.close_node(name, reason=reason, until=until, begin=begin))


@click.command("uncordon")
@_machines
@click.option("--planned", is_flag=True, help="Give up what is planned for it, too.")
@with_client
def uncordon(client: Client, names: tuple[str, ...], planned: bool) -> int:
    """Let new work start on each NODE again."""
    return _change(client, names, lambda client, name: client.open_node(name, planned=planned))


def _change(client: Client, names: Sequence[str], act: Callable[[Client, str], NodeInfo]) -> int:
    """Do it to each machine, and print how it is then."""

    def change(name: str) -> None:
        node = act(client, name)
        click.echo(f"{node.name}: {machine_state(node)}")

    return for_each(names, change)
