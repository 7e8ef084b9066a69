"""What every command that lists something shares: its forms, and watching it change."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from millpond.client.cli.escaped_text import json_text, yaml_text
from millpond.specs.api.base import Body

FORMS = ("table", "wide", "json", "yaml", "name")
WATCH_EVERY_S = 2.0
_CLEAR = "\x1b[H\x1b[2J"


@dataclass(frozen=True, slots=True)
class Listing:
    """A list as it is now.

    Attributes:
        body: the API's own.
        names: of its entries.
        draw: prints it for people, with more columns when its argument is true.
    """

    body: Body
    names: Sequence[str]
    draw: Callable[[bool], None]


def listing_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options ``-o`` and ``--watch``."""
    return listing_options_with()(command)


def listing_options_with(*more: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The same, with further forms that the command prints itself."""
    form = click.option("-o", "--output", type=click.Choice(FORMS + more), default="table", help="Form of the list.")
    watch = click.option("-w", "--watch", is_flag=True, help="Show it again whenever it changes, until Ctrl-C.")
    return lambda command: form(watch(command))


def show_listing(look: Callable[[], Listing], output: str, watch: bool) -> None:
    """Print a list in one of ``FORMS``; with ``watch`` again and again, on a terminal in place."""
    if not watch:
        _print(look(), output)
        return
    shown: Body | None = None
    on_terminal = sys.stdout.isatty()
    while True:
        listing = look()
        if on_terminal or listing.body != shown:
            shown = listing.body
            if on_terminal:
                click.echo(_CLEAR, nl=False)
            _print(listing, output)
            sys.stdout.flush()
        time.sleep(WATCH_EVERY_S)


def _print(listing: Listing, output: str) -> None:
    match output:
        case "json":
            click.echo(json_text(listing.body))
        case "yaml":
            click.echo(yaml_text(listing.body), nl=False)
        case "name":
            for name in listing.names:
                click.echo(name)
        case _:
            listing.draw(output == "wide")
