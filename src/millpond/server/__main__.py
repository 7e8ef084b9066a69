"""``python -m millpond.server``: the server as a program of its own, for running in the background."""

from __future__ import annotations

import gc
import sys

import click


def main() -> int:
    """Serve as the command line says; returns the exit code."""
    # What is imported stays: looking through it for garbage again and again is a tenth of the start.
    gc.disable()
    from millpond.server.startup.command_line import parse_options
    from millpond.server.startup.process import run

    try:
        return run(parse_options(sys.argv[1:]))
    except click.UsageError as error:
        error.show()
        return error.exit_code
    except click.exceptions.Exit as done:
        return done.exit_code


if __name__ == "__main__":
    sys.exit(main())
