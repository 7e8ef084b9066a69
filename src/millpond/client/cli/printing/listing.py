"""What every command that lists something shares: declared tables, the forms of a list, and watching it change.

A table is drawn to the width of a terminal, or as plain columns for a pipe, where nothing is cut and nothing coloured.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import click

from millpond.client.cli.connection import connect, state_dir_option
from millpond.client.cli.error_output import say
from millpond.client.cli.printing.cell_widths import cells_of
from millpond.specs.escaped_text import json_text, visible, yaml_text

FORMS = ("table", "wide", "json", "yaml", "name")
WATCH_EVERY_S = 2.0
_CLEAR = "\x1b[H\x1b[2J"

Entry = TypeVar("Entry")

_GAP = 2
_LEAST_WRAPPED = 14
_WIDEST_UNCUT = 32
"""A column wider than this would leave nothing for those that give way."""
_STYLES = {
    "running": "green",
    "succeeded": "green",
    "queued": "yellow",
    "starting": "yellow",
    "stopping": "yellow",
    "suspended": "yellow",
    "failed": "red",
    "cancelled": "dim",
    "stopped early": "dim",
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        text: the cell of an entry; unused where rows are given as texts.
        right: numbers stand at the right.
        gives_way: is shortened when the terminal is narrow, to its title at most; a terminal that is narrower still
            wraps the lines. Others are shortened only where they are very wide, and in the middle: names that begin
            alike tend to end differently.
        wraps: goes on in the next line when the terminal is narrow: sentences, of which nothing is to be lost.
        whole: is never shortened, as people copy it.
        wide: stands in the wide form of the table alone.
        unless_all: is left out where every entry has this in it.
    """

    title: str
    text: Callable[[Any], str] = str
    right: bool = False
    gives_way: bool = False
    wraps: bool = False
    whole: bool = False
    wide: bool = False
    unless_all: str | None = None


@dataclass(frozen=True, slots=True)
class ListTable(Generic[Entry]):
    """A declared table: what each column shows of an entry. The first column names the entry."""

    columns: Sequence[Column]

    def show(self, entries: Sequence[Entry], wide: bool, empty: str = "") -> None:
        """Print the table to standard output; with ``wide`` all columns, at their whole width."""
        columns = [
            column
            for column in self.columns
            if (wide or not column.wide)
            and (column.unless_all is None or any(column.text(entry) != column.unless_all for entry in entries))
        ]
        rows = [[column.text(entry) for column in columns] for entry in entries]
        show(columns, rows, fitted=not wide, empty=empty)


def show(columns: Sequence[Column], rows: Sequence[Sequence[str]], fitted: bool = True, empty: str = "") -> None:
    """Print a table to standard output.

    Args:
        fitted: cut it to the terminal's width where there is one.
        empty: what is said on standard error where there are no rows.
    """
    if not rows and empty:
        say(empty)
        return
    rows = [[visible(cell) for cell in row] for row in rows]
    if fitted and sys.stdout.isatty():
        _draw(columns, rows)
        return
    texts = [[column.title for column in columns], *([cell or "-" for cell in row] for row in rows)]
    widths = [max(cells_of(row[index]) for row in texts) for index in range(len(columns))]
    for row in texts:
        cells = (_filled(cell, width, column) for cell, width, column in zip(row, widths, columns, strict=True))
        click.echo("  ".join(cells).rstrip())


def middle_cut(text: str, width: int, end: int) -> str:
    """``text`` in at most ``width`` characters, of which the last ``end`` are its own last."""
    return text if len(text) <= width else f"{text[: width - 1 - end]}…{text[len(text) - end :]}"


def _filled(text: str, width: int, column: Column) -> str:
    blanks = " " * (width - cells_of(text))
    return blanks + text if column.right else text + blanks


def _draw(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
    rows = [[_bounded(cell, column) for cell, column in zip(row, columns, strict=True)] for row in rows]
    narrowest = 0
    for index, column in enumerate(columns):
        widest = max(cells_of(text) for text in (column.title, *(row[index] for row in rows)))
        least = min(widest, _LEAST_WRAPPED) if column.wraps else widest
        narrowest += (cells_of(column.title) if column.gives_way else least) + _GAP
        table.add_column(
            column.title,
            justify="right" if column.right else "left",
            no_wrap=not (column.gives_way or column.wraps),
            min_width=None if column.gives_way else least,
        )
    for row in rows:
        cells = zip(row, columns, strict=True)
        table.add_row(
            *(
                Text(
                    cell,
                    style=_STYLES.get(cell, ""),
                    no_wrap=not column.wraps,
                    overflow="fold" if column.wraps else "ellipsis",
                )
                for cell, column in cells
            )
        )
    console = Console()
    console.width = max(console.width, narrowest)  # a narrower one would lose columns, the first of all
    console.print(table)


def _bounded(cell: str, column: Column) -> str:
    return (
        cell
        if column.gives_way or column.wraps or column.whole
        else middle_cut(cell, _WIDEST_UNCUT, _WIDEST_UNCUT // 2)
    )


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
        @listing_options()
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


def listing_options(*more: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the options ``-o``, with further forms that it prints itself, and ``--watch``."""
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
