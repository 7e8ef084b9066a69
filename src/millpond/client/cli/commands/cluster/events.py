"""``pond events``: what happened and what was decided, with reasons."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from millpond.client.cli.connection import connect, job_argument, state_dir_option
from millpond.client.cli.printing import formats
from millpond.client.cli.printing.listing import Column, Listing, listing_options, show, show_listing
from millpond.client.sdk import Client
from millpond.client.sdk.resources.jobs import ENDED
from millpond.client.sdk.transport.reconnecting import Patience
from millpond.model.errors import InvalidInputError, UnavailableError
from millpond.specs.api.events import EventInfo, EventList

LOOK_EVERY_S = 1.0
_AT_ONCE = 1_000


@click.command("events")
@job_argument("job", required=False)
@click.option("--node", metavar="NODE", help="Of this machine.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens, to the end of the job or until Ctrl-C.")
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=50,
    show_default=True,
    help="How many of the latest, where no JOB is named.",
)
@listing_options()
@state_dir_option
def command(
    job: str | None, node: str | None, follow: bool, limit: int, output: str, watch: bool, state_dir: Path | None
) -> None:
    """List events and decisions with their reasons: of JOB, of a node, or the latest."""
    if job is not None and node is not None:
        raise InvalidInputError("both a job and --node", "leave one of them out")
    if follow and (node is not None or watch or output != "table"):
        raise InvalidInputError("--follow with --node, --watch or -o", "leave one of them out")
    with connect(state_dir) as client:
        name = "" if job is None else client.find(job).id

        def infos() -> list[EventInfo]:
            if name:
                return client.events(name)
            return client.happenings(limit=limit) if node is None else client.node_events(node, limit)

        def look() -> Listing:
            found = infos()
            names = [one.about for one in found]
            return Listing(EventList(events=found), names, lambda wide: _table(found, wide, with_about=not name))

        if follow:
            _follow(client, name, infos())
        else:
            show_listing(look, output, watch)


def _table(infos: list[EventInfo], wide: bool, *, with_about: bool) -> None:
    about = [Column("ABOUT")] if with_about else []
    columns = [Column("TIME"), *about, Column("WHAT", wraps=True)]
    show(
        columns, [[_time(one), *([one.about] if with_about else []), one.text] for one in infos], not wide, "no events"
    )


def _follow(client: Client, job: str, infos: list[EventInfo]) -> None:
    """Print line by line what comes; a server that is away for a while is waited for."""
    patience = Patience(client)
    seq = _print(infos, 0)
    while True:
        try:
            over = bool(job) and client.job(job).state in ENDED
            fresh = client.events(job) if job else client.happenings(after=seq, limit=_AT_ONCE)
        except UnavailableError as error:
            patience.lost(error)
            continue
        patience.found()
        seq = _print([one for one in fresh if one.seq > seq], seq)
        if over:
            return
        time.sleep(LOOK_EVERY_S)


def _print(infos: list[EventInfo], seq: int) -> int:
    """Print these; returns how far that goes, at least ``seq``."""
    for one in infos:
        click.echo(f"{_time(one)}  {one.about}  {one.text}")
    sys.stdout.flush()
    return infos[-1].seq if infos else seq


def _time(one: EventInfo) -> str:
    return formats.instant_text(one.at, seconds=True)
