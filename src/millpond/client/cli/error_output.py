"""How an error looks to a person: what is wrong, what to do, and nothing else.

``MILLPOND_DEBUG=1`` adds the traceback, for those who mend Millpond itself.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
import textwrap
import traceback
from difflib import get_close_matches
from typing import Any, Final

import click

from millpond.client.cli.command_suggestions import meant_option
from millpond.model.errors import MillpondError, UnavailableError
from millpond.specs.escaped_text import visible

INTERRUPTED = 130
"""Exit code after Ctrl-C, as a shell shows it."""
BROKEN_PIPE = 141
"""Exit code when the reader of our output went away, as a shell shows it."""

_MARK = "pond: "
_LONGEST_LINE: Final = 2_000
"""Characters of a line of a message, which may repeat what was written: of longer ones the middle is left out."""
_REMEDIES: Final = {
    **dict.fromkeys((errno.EACCES, errno.EPERM), "check its rights, and those of the folders above it"),
    **dict.fromkeys((errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP), "check the path"),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "make room there"),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "allow more open files (`ulimit -n 1024`)"),
    **dict.fromkeys((errno.ENOMEM, errno.EAGAIN), "allow more memory and processes (`ulimit -a`), or end some"),
    errno.ENAMETOOLONG: "write a shorter path",
    errno.EROFS: "name a place that can be written",
    errno.EIO: "see whether the disk is sound (`dmesg`)",
}
"""What helps against an error of the system that no command has explained."""


def complain(error: MillpondError) -> None:
    """Print an error to standard error: its cause, then its remedy.

    What cannot be reached or used is one line outside a terminal, so that scripts and logs keep it together.
    """
    _trace(error)
    lines = [str(error)] if isinstance(error, UnavailableError) else [error.cause, error.remedy]
    say("\n".join(line for line in lines if line))


def complain_about_system(error: OSError) -> None:
    """Print an error of the system that no command has explained: without its number, with its file and a remedy."""
    said = error.strerror or str(error)
    cause = f"the system says: {said}" + ("" if error.filename is None else f": {error.filename}")
    explained = MillpondError(cause, _REMEDIES.get(error.errno or 0, "MILLPOND_DEBUG=1 shows where"))
    explained.__cause__ = error
    complain(explained)


def complain_about_defect(error: Exception) -> None:
    """Print an unexpected error: its kind and words, and how to see where it comes from."""
    _trace(error)
    say(f"a defect of Millpond: {type(error).__name__}: {error}\nMILLPOND_DEBUG=1 shows where; please report it")


def complain_about_usage(error: click.ClickException) -> None:
    """Print a wrong use of the command line to standard error, with the help that explains it."""
    message = error.format_message()
    if isinstance(error, click.NoSuchOption):
        near = meant_option(error)
        message = f"no such option {error.option_name!r}" + (f"; did you mean {near}?" if near else "")
    if isinstance(error, click.BadParameter) and error.param is not None and isinstance(error.param.type, click.Choice):
        message = _nearest(error.message, error.param.type) or message
    if isinstance(error, click.MissingParameter) and error.param is not None:
        message = _missing(error.param)
    message = message.replace("not a valid integer range", "not a whole number")
    say(f"{message[:1].lower()}{message[1:].rstrip('.')}")
    if isinstance(error, click.UsageError) and error.ctx is not None and error.ctx.parent is not None:
        click.echo(f"{' ' * len(_MARK)}`{error.ctx.command_path} --help` explains it", err=True)


def _nearest(message: str, known: click.Choice[Any]) -> str:
    """What may have been meant by a word that is none of those known; empty: none of them is near."""
    word = message.partition(" is not ")[0]
    near = get_close_matches(word.strip("'\""), list(map(str, known.choices)), 1)
    return f"no {word}; did you mean {near[0]!r}?\nThere are {', '.join(map(str, known.choices))}" if near else ""


def _missing(param: click.Parameter) -> str:
    name = f"argument {param.human_readable_name}" if isinstance(param, click.Argument) else param.opts[0]
    choices = param.type.choices if isinstance(param.type, click.Choice) else ()
    return f"missing {name}" + (f"; write one of {', '.join(choices)}" if choices else "")


def _trace(error: Exception) -> None:
    if os.environ.get("MILLPOND_DEBUG") == "1":
        traceback.print_exception(error)


def say(text: str) -> None:
    """Print a message to standard error: further lines stand under the first, on a terminal wrapped between words."""
    lines = [visible(_bounded(line.expandtabs())) for line in text.splitlines()]
    if sys.stderr.isatty():
        width = shutil.get_terminal_size().columns - len(_MARK)
        lines = [part for line in lines for part in wrapped(line, width)]
    click.echo(_MARK + f"\n{' ' * len(_MARK)}".join(lines), err=True)


def _bounded(line: str) -> str:
    half = _LONGEST_LINE // 2
    return line if len(line) <= _LONGEST_LINE else f"{line[:half]} … {line[-half:]}"


def echo_wrapped(text: str, *, err: bool = False) -> None:
    """Print lines for people as they are, but on a terminal wrapped between words."""
    lines = text.splitlines()
    if (sys.stderr if err else sys.stdout).isatty():
        width = shutil.get_terminal_size().columns
        lines = [part for line in lines for part in wrapped(line, width)]
    click.echo("\n".join(lines), err=err)


def wrapped(text: str, width: int) -> list[str]:
    """One line of text as lines of ``width`` characters, at least 20; words (paths, links, ids) are not cut."""
    return textwrap.wrap(text, max(width, 20), break_long_words=False, break_on_hyphens=False) or [""]
