"""``pond nodes cordon, drain, maintain, uncordon, forget``: machines and cards that take no new work, for a while or
ever."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from millpond.client.cli.connection import for_each, with_client
from millpond.client.cli.printing.formats import card_state, machine_state
from millpond.client.cli.time_options import WRITTEN, future
from millpond.client.sdk import Client
from millpond.model.errors import InvalidInputError
from millpond.specs.api.pool.nodes import DeviceInfo, NodeInfo

_machines = click.argument("names", nargs=-1, required=True, metavar="NODE...")
_places = click.argument("names", nargs=-1, required=True, metavar="NODE[/CARD]...")
_reason = click.option("--reason", default="", metavar="TEXT", help="Why, for those whose jobs wait.")


def _until(required: bool = False) -> Callable[..., Any]:
    text = f"When it opens by itself: {WRITTEN}" + ("." if required else " [default: on `uncordon`].")
    return click.option("--until", metavar="WHEN", required=required, callback=future, help=text)


@click.command("cordon")
@_places
@_reason
@_until()
@with_client
def cordon(client: Client, names: tuple[str, ...], reason: str, until: float | None) -> int:
    """Start nothing new on each NODE, or each CARD of one by its number; running work goes on."""
    return _change(names, lambda name, card: client.close_node(name, reason=reason, until=until, card=card))


@click.command("drain")
@_places
@_reason
@_until()
@with_client
def drain(client: Client, names: tuple[str, ...], reason: str, until: float | None) -> int:
    """Empty each NODE or CARD: nothing new starts there, and preemptible work leaves.

    It gets notice and its grace period, and runs again from its queue. Other work may go on to its end.
    """
    return _change(names, lambda name, card: client.close_node(name, reason=reason, until=until, drain=True, card=card))


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
    return for_each(names, lambda name: _tell(client.close_node(name, reason=reason, until=until, begin=begin)))


@click.command("uncordon")
@_places
@click.option("--planned", is_flag=True, help="Give up what is planned for it, too.")
@with_client
def uncordon(client: Client, names: tuple[str, ...], planned: bool) -> int:
    """Let new work start on each NODE or CARD again."""
    return _change(names, lambda name, card: client.open_node(name, planned=planned, card=card))


@click.command("forget")
@_machines
@with_client
def forget(client: Client, names: tuple[str, ...]) -> int:
    """Know each NODE no more that was switched off and does not come back.

    One that joins all the same is known anew.
    """

    def forget_one(name: str) -> None:
        client.forget_node(name)
        click.echo(f"{name}: forgotten")

    return for_each(names, forget_one)


def _change(names: Sequence[str], act: Callable[[str, int | None], NodeInfo]) -> int:
    """Do it to each machine or card, and print how it is then."""

    def change(place: str) -> None:
        name, slash, number = place.rpartition("/")
        if not slash:
            _tell(act(place, None))
            return
        if not number.isascii() or not number.isdigit():
            raise InvalidInputError(f"no card {place!r}", "write NODE/CARD with the card's number, as n1/3")
        node = act(name, int(number))
        device = next(device for device in node.devices if device.index == int(number))
        click.echo(f"{place}: {card_state(device)}{_waits_for(device)}")

    return for_each(names, change)


def _tell(node: NodeInfo) -> None:
    click.echo(f"{node.name}: {machine_state(node)}")


def _waits_for(device: DeviceInfo) -> str:
    is_draining = device.closure is not None and device.closure.drain and device.holders
    return f"; waits for {', '.join(device.holders)}" if is_draining else ""
