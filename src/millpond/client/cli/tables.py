"""Tables: drawn to the width of a terminal, or plain columns for a pipe, where nothing is cut and nothing coloured."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import click


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        right: numbers stand at the right.
        gives_way: is shortened first when the terminal is narrow.
    """

    title: str
    right: bool = False
    gives_way: bool = False


def show(columns: Sequence[Column], rows: Sequence[Sequence[str]], fitted: bool = True) -> None:
    """Print a table to standard output; with ``fitted``, cut to the terminal's width where there is one."""
    if fitted and sys.stdout.isatty():
        _draw(columns, rows)
        return
    texts = [[column.title for column in columns], *([cell or "-" for cell in row] for row in rows)]
    widths = [max(len(row[index]) for row in texts) for index in range(len(columns))]
    for row in texts:
        cells = (
            cell.rjust(width) if column.right else cell.ljust(width)
            for cell, width, column in zip(row, widths, columns, strict=True)
        )
        click.echo("  ".join(cells).rstrip())


def _draw(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for index, column in enumerate(columns):
        widest = max(len(text) for text in (column.title, *(row[index] for row in rows)))
        gives_way = column.gives_way or widest > _WIDEST_UNCUT
        table.add_column(
            column.title,
            justify="right" if column.right else "left",
            no_wrap=not gives_way,
            min_width=None if gives_way else widest,
        )
    for row in rows:
        table.add_row(*(Text(cell, style=_STYLES.get(cell, ""), no_wrap=True, overflow="ellipsis") for cell in row))
    Console().print(table)


_WIDEST_UNCUT = 40
"""A column wider than this gives way too, or nothing would be left for the others."""
_STYLES = {
    "running": "green",
    "succeeded": "green",
    "queued": "yellow",
    "starting": "yellow",
    "stopping": "yellow",
    "suspended": "yellow",
    "failed": "red",
    "cancelled": "dim",
}
