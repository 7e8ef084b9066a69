"""``pond reserve`` and ``pond reservations``: cards for a queue, from one time to another."""

from __future__ import annotations

import time
from typing import Any

import click

from millpond.client.cli.command_suggestions import SuggestingGroup
from millpond.client.cli.connection import for_each, with_client
from millpond.client.cli.error_output import say
from millpond.client.cli.printing import formats
from millpond.client.cli.printing.listing import Column, Listing, ListTable, lists
from millpond.client.cli.time_options import WRITTEN, future
from millpond.client.sdk import Client
from millpond.model.amounts import milli_text
from millpond.model.errors import InvalidInputError, NotFoundError
from millpond.specs.api.pool.reservations import ReservationInfo, ReservationList


@click.command("reserve")
@click.argument("name", default="", metavar="[NAME]")
@click.option("--queue", help="Queue whose jobs get the cards.")
@click.option("--cards", type=click.IntRange(min=1), help="How many.")
@click.option(
    "--from", "begin", metavar="WHEN", is_eager=True, callback=future, help=f"When it begins: {WRITTEN} [default: now]."
)
@click.option("--until", metavar="WHEN", callback=future, help="When it ends.")
@click.option("--pool", help="Pool of the cards.")
@click.option("--models", "models", multiple=True, metavar="MODEL", help="Allowed card model; may be repeated.")
@click.option("--whole-nodes/--any-nodes", "whole_nodes", default=None, help="Whole nodes, with all their cards.")
@click.option("--beyond-guarantee", is_flag=True, default=None, help="Beyond the guarantee of the queue, for admins.")
@with_client
def reserve(client: Client, name: str, **wanted: Any) -> None:
    """Reserve cards for the jobs of a queue, and print the name; or change the reservation NAME.

    From its begin to its end the jobs of the queue start on these cards; others are asked to leave before. What does
    not fit says from when on it does.
    """
    known = {each.name: each for each in client.reservations()}
    given = {field: value for field, value in wanted.items() if value not in (None, ())}
    if name in known:
        given = _as_agreed(known[name]) | given
    missing = [f"--{field}" for field in ("queue", "cards", "until") if field not in given]
    if missing:
        raise InvalidInputError(
            f"a new reservation without {' and '.join(missing)}",
            "name what is missing; `pond reservations` lists the reservations that there are",
        )
    made = client.reserve(name or _unused_name(given["queue"], known), **given)
    click.echo(made.name)
    say(f"from {formats.instant_text(made.begin)} until {formats.instant_text(made.until)} ({time.strftime('%Z')})")
    if made.missing > 0:
        say(f"{made.missing} of its cards cannot be had now")


def _as_agreed(info: ReservationInfo) -> dict[str, Any]:
    """What a change leaves as it is."""
    return {
        "queue": info.queue,
        "cards": info.cards,
        "begin": info.begin,
        "until": info.until,
        "pool": info.pool,
        "models": info.models,
        "whole_nodes": info.whole_nodes,
        "beyond_guarantee": info.beyond_guarantee,
    }


def _unused_name(queue: str, known: dict[str, ReservationInfo]) -> str:
    number = 1
    while f"{queue}-{number}" in known:
        number += 1
    return f"{queue}-{number}"


def _cards(info: ReservationInfo) -> str:
    models = f" {'/'.join(info.models)}" if info.models else ""
    return f"{info.cards}{models}{' (whole nodes)' if info.whole_nodes else ''}"


def _state(info: ReservationInfo) -> str:
    """How it stands, with the cards that are used, and those that cannot be had."""
    state = info.state
    if state == "active":
        used = 1000 * sum(info.nodes.values()) - info.unused_gpu_milli
        state = f"active, {milli_text(used)} used"
    return f"{state}, {info.missing} missing" if info.missing > 0 else state


_TABLE: ListTable[ReservationInfo] = ListTable(
    (
        Column("NAME", lambda info: info.name),
        Column("QUEUE", lambda info: info.queue),
        Column("CARDS", _cards),
        Column("FROM", lambda info: formats.instant_text(info.begin)),
        Column("UNTIL", lambda info: formats.instant_text(info.until)),
        Column("STATE", _state, gives_way=True),
        Column("NODES", lambda info: ", ".join(f"{node} ({cards})" for node, cards in info.nodes.items()), wide=True),
        Column("JOBS", lambda info: ", ".join(info.jobs), wide=True),
        Column("BY", lambda info: info.by, wide=True),
    )
)


@click.group("reservations", cls=SuggestingGroup, invoke_without_command=True)
@lists()
def group(client: Client) -> Listing:
    """List the advance reservations of the queues of your groups (admins: all); cancel them."""
    found = client.reservations()
    body = ReservationList(reservations=found)
    return Listing.of(body, found, _TABLE, empty="no reservations (`pond reserve` makes one)")


@group.command("cancel")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@with_client
def cancel(client: Client, names: tuple[str, ...]) -> int:
    """Give each reservation NAME up; work on its cards goes on as any other."""

    def give_up(name: str) -> None:
        client.cancel_reservation(name)
        click.echo(f"{name}: cancelled")

    return for_each(names, give_up)


@group.command("show")
@click.argument("name")
@with_client
def show(client: Client, name: str) -> None:
    """Show one reservation, with its nodes and the jobs on them."""
    found = next((each for each in client.reservations() if each.name == name), None)
    if found is None:
        raise NotFoundError(f"no reservation {name!r}", "`pond reservations` lists them")
    click.echo(f"{found.name}: {_cards(found)} cards for queue {found.queue}, by {found.by or 'somebody'}")
    facts = {
        "from": formats.instant_text(found.begin),
        "until": formats.instant_text(found.until),
        "state": _state(found),
        "nodes": ", ".join(f"{node} ({cards})" for node, cards in found.nodes.items()) or "chosen a day before",
        "jobs": ", ".join(found.jobs),
    }
    for title, text in facts.items():
        if text:
            click.echo(f"  {title:<6}  {text}")
