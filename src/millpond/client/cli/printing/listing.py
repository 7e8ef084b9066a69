"""What every command that lists something shares: its forms, and watching it change."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import click

from millpond.client.cli.connection import connect, state_dir_option
from millpond.client.cli.error_output import say
from millpond.client.cli.printing.tables import Entry, ListTable
from millpond.specs.escaped_text import json_text, yaml_text

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

    body: object
    names: Sequence[str]
    draw: Callable[[bool], None]

    @classmethod
    def of(
        cls, body: object, entries: Sequence[Entry], table: ListTable[Entry], empty: str = "", note: str = ""
    ) -> Self:
        """The list whose entries a declared table shows.

        Args:
            empty: printed to standard error instead of a table without entries.
            note: printed to standard error below the table.
        """

        def draw(wide: bool) -> None:
            table.show(entries, wide, empty)
            if entries and note:
                say(note)

        return cls(body, [table.columns[0].text(entry) for entry in entries], draw)


def lists(job: str = "") -> Callable[[Callable[..., Listing]], Callable[..., None]]:
    """Make a command of a function that asks the server for a list; it gets ``-o``, ``--watch`` and ``--state-dir``.

    Where it is a group of commands, it lists only if none of these is called.
    The function is called with the connection and the command's other arguments, with ``--watch`` again and again.

    Args:
        job: the argument that names a job; the function gets its whole id.
    """

    def command_of(look: Callable[..., Listing]) -> Callable[..., None]:
        @listing_options
        @state_dir_option
        @functools.wraps(look)
        def command(output: str, watch: bool, state_dir: Path | None, **arguments: Any) -> None:
            if click.get_current_context().invoked_subcommand is not None:
                return
            with connect(state_dir) as client:
                if arguments.get(job) is not None:
                    arguments[job] = client.find(arguments[job]).id
                show_listing(functools.partial(look, client, **arguments), output, watch)

        return command

    return command_of


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
    shown: object = None
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
