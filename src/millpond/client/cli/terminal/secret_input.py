"""Asking for secrets: at the terminal without showing them, or from standard input; never as an argument, which every
user of a machine can read."""

from __future__ import annotations

import sys

import click

from millpond.model.errors import InvalidInputError

from_stdin = click.option("--stdin", "stdin", is_flag=True, help="Read secrets from standard input, one a line.")


class SecretInput:
    """Where the secrets of one command come from.

    Args:
        stdin: read lines of standard input instead of asking.
    """

    def __init__(self, stdin: bool) -> None:
        self._stdin = stdin

    def ask(self, what: str) -> str:
        """One secret.

        Raises:
            InvalidInputError: standard input has no further line, or is no terminal.
        """
        if self._stdin:
            line = sys.stdin.readline()
            if not line:
                raise InvalidInputError(f"standard input ends before the {what}", "give one secret on each line")
            return line.rstrip("\r\n")
        if not sys.stdin.isatty():
            raise InvalidInputError(f"no terminal to ask for the {what} on", "use --stdin")
        return str(click.prompt(what[:1].upper() + what[1:], hide_input=True, err=True))

    def ask_new(self, what: str = "password") -> str:
        """A new password or the like, typed twice at a terminal.

        Raises:
            InvalidInputError: the two differ.
        """
        first = self.ask(f"new {what}")
        if not self._stdin and self.ask(f"new {what} again") != first:
            raise InvalidInputError(f"the two {what}s differ", "type the same one twice")
        return first
