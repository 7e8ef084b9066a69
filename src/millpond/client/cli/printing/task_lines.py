"""The lines of several tasks, or lines with their times, on one screen: whole lines only, each with a head.

On a terminal a line that is written over from its beginning, as by a progress bar, is shown as it was written last.
Until it ends it stands below all others, cut to the window; of several such lines the one that changed last.
"""

from __future__ import annotations

import shutil
from typing import Final, TextIO

import click

from millpond.client.cli.printing.cell_widths import beginning
from millpond.specs.escaped_text import visible

RESET: Final = "\x1b[0m"
CLEAR_LINE: Final = "\r\x1b[2K"
LONGEST_LINE: Final = 2**20
"""Characters that are kept of a line until its end: a program may never write one."""

Writer = tuple[int, int, str]
"""An attempt, a task and the name of its stream: two that write at once must not share a line."""


class TaskLines:
    """Prints lines as they end, and keeps what has no end yet."""

    def __init__(self) -> None:
        self._open: dict[Writer, tuple[str, TextIO]] = {}
        self._bar: Writer | None = None
        self._drawn_on: TextIO | None = None

    def write(self, writer: Writer, head: str, data: str, stream: TextIO) -> None:
        """Print a piece; ``head`` stands before the lines that begin in it."""
        self.clear()
        begun, _ = self._open.pop(writer, (head, stream))
        lines = [begun if not at else head for at in range(data.count("\n") + 1)]
        lines = [before + text for before, text in zip(lines, data.split("\n"), strict=True)]
        if stream.isatty():
            lines = [_last_drawn(line, head) for line in lines]
        *whole, rest = lines
        stream.write("".join(_ended(line, stream) for line in whole))
        if rest != head:
            self._open[writer] = (rest, stream)
        if len(rest) > LONGEST_LINE:
            self.end(writer)
        elif "\r" in data and stream.isatty():
            self._bar = writer
        self._draw()

    def end(self, writer: Writer) -> None:
        """Print what a writer left without a line end."""
        self.clear()
        rest, stream = self._open.pop(writer, ("", None))
        if stream is not None:
            stream.write(_ended(rest, stream))
            stream.flush()

    def end_all(self) -> None:
        """Print what all writers left without a line end."""
        for writer in list(self._open):
            self.end(writer)

    def clear(self) -> None:
        """Take the line that is not over off the terminal, before anything else is written there."""
        if self._drawn_on is not None:
            self._drawn_on.write(CLEAR_LINE)
            self._drawn_on.flush()
            self._drawn_on = None

    def _draw(self) -> None:
        if self._bar in self._open:
            rest, stream = self._open[self._bar]
            text = visible(click.unstyle(rest.rstrip("\r")).expandtabs())
            stream.write(beginning(text, shutil.get_terminal_size().columns - 1))
            stream.flush()
            self._drawn_on = stream


def _last_drawn(line: str, head: str) -> str:
    """Of a line that was written over from its beginning what was written last."""
    text = line.rstrip("\r")
    _, is_over, last = text.rpartition("\r")
    return head + last + line[len(text) :] if is_over else line


def _ended(line: str, stream: TextIO) -> str:
    """A whole line; on a terminal it does not colour the next one, which may be another task's."""
    if not stream.isatty():
        return f"{line}\n"
    text = line.rstrip("\r")
    return f"{text}{RESET}\n" if "\x1b" in text else f"{text}\n"
