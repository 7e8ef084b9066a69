"""How benchmarks talk: their command line, JSON for programs, plain tables for people, a line now and then on the way.

What a benchmark was given and cannot use, it names in one line before it measures anything, with exit code 2.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

from millpond.model.errors import InvalidInputError

Answer = TypeVar("Answer")


def program(main: Callable[[Sequence[str] | None], Answer]) -> Callable[..., Answer]:
    """The ``main`` of a benchmark, ended with one line and exit code 2 by what it was given and cannot use.

    SIGTERM ends it as an exit does, so that the servers which it has started end with it.
    """

    @wraps(main)
    def run(arguments: Sequence[str] | None = None) -> Answer:
        before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        try:
            return main(arguments)
        except InvalidInputError as error:
            sys.stderr.write(f"{error}\n")
            raise SystemExit(error.exit_code) from None
        finally:
            signal.signal(signal.SIGTERM, before)

    return run


def command_line(description: str | None) -> argparse.ArgumentParser:
    """A parser that knows what every benchmark takes."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=_target, metavar="FILE", help="write the result there; - is standard output")
    return parser


def _target(text: str) -> str:
    path = Path(text)
    if text != "-" and (path.is_dir() or not path.parent.is_dir()):
        raise InvalidInputError(f"--json {text}: no file can be written there", "name one in a folder that exists")
    return text


class Table:
    """Rows of text under headings, aligned for a terminal.

    Args:
        texts: how many of the first columns hold words; they are aligned to the left, numbers to the right.
    """

    def __init__(self, *headings: str, texts: int = 0) -> None:
        self._rows = [headings]
        self._texts = texts

    def add(self, *cells: str) -> None:
        """One more row."""
        self._rows.append(cells)

    def __str__(self) -> str:
        widths = [max(len(row[column]) for row in self._rows) for column in range(len(self._rows[0]))]
        lines = ["  ".join(map(self._aligned, row, range(len(row)), widths)).rstrip() for row in self._rows]
        return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])

    def _aligned(self, cell: str, column: int, width: int) -> str:
        return cell.ljust(width) if column < self._texts else cell.rjust(width)


def emit(result: dict[str, Any], target: str | None, lines: Sequence[Table | str]) -> None:
    """Write the result as JSON to ``target`` (``-`` is standard output), and the lines to the terminal."""
    text = json.dumps(result, indent=2)
    if target == "-":
        sys.stdout.write(text + "\n")
        return
    if target:
        Path(target).write_text(text + "\n", encoding="utf-8")
    for line in lines:
        sys.stdout.write(f"{line}\n")


def note(text: str) -> None:
    """Say on standard error what is being done, where a person watches."""
    if sys.stderr.isatty():
        sys.stderr.write(f"{text}\n")


def verdict(met: bool | None) -> str:
    """Whether a target was met, in a word."""
    return "" if met is None else "yes" if met else "MISSED"


@dataclass(frozen=True, slots=True)
class Row:
    """One measured figure.

    Attributes:
        target: what it should reach, None where it only explains others.
        least: whether the target is a lower bound.
    """

    what: str
    value: float
    unit: str
    target: float | None = None
    least: bool = False

    @property
    def met(self) -> bool | None:
        """Whether it reaches its target."""
        if self.target is None:
            return None
        return self.value >= self.target if self.least else self.value <= self.target

    @property
    def plain(self) -> dict[str, Any]:
        """The row as JSON, with whether it was met."""
        return asdict(self) | {"met": self.met}


def table_of(rows: Iterable[Row]) -> Table:
    """Rows as people read them."""
    table = Table("what", "value", "unit", "target", "met", texts=1)
    for row in rows:
        bound = "" if row.target is None else f"{'>=' if row.least else '<='} {row.target:.4g}"
        table.add(row.what, f"{row.value:.4g}", row.unit, bound, verdict(row.met))
    return table
