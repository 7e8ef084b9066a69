"""The entry point of ``pond``: finds the command, runs it, and turns every error into a line that helps.

A command's module is imported when the command is used, never before: ``pond --help`` and ``pond --version`` read the
table of commands and load click alone.
"""

from __future__ import annotations

import gc
import importlib
import io
import os
import sys
from typing import TYPE_CHECKING, TextIO

import click

from millpond.client.cli.command_suggestions import SuggestingGroup
from millpond.client.cli.command_table import COMMANDS, SECTIONS
from millpond.client.cli.error_output import (
    BROKEN_PIPE,
    INTERRUPTED,
    complain,
    complain_about_defect,
    complain_about_system,
    complain_about_usage,
)
from millpond.model.errors import InconsistentStateError, MillpondError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

ALLOCATIONS = 50_000
"""Between two searches for garbage. Imports make many objects and no garbage: with Python's own threshold, a fifth of a
command's time goes into searching."""


class LazyGroup(SuggestingGroup):
    """A group that knows its commands by name and imports one when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module, _, attribute = entry.target.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands by the table: to import all of them would take longer than anybody waits for a key."""
        from click.shell_completion import CompletionItem

        names = [name for name in COMMANDS if name.startswith(incomplete)]
        found = [CompletionItem(name, help=COMMANDS[name].help) for name in names]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))
        for title, entries in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), entry.help) for name, entry in entries.items()])


def _print_version(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"pond {version('millpond')}")
        ctx.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with `pond up`, then `pond run -- COMMAND`.",
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Print the version."
)
def cli() -> None:
    """One calm pool out of a team's GPU machines."""


def main() -> None:
    """Run ``pond`` and end the process with its exit code."""
    gc.set_threshold(ALLOCATIONS)
    _open_what_is_closed()
    if "_POND_COMPLETE" in os.environ:
        cli.main(prog_name="pond")
    print_what_can_be(sys.stdout)
    code = run_line(sys.argv[1:])
    gc.freeze()  # what is left ends with the process, unsearched
    sys.exit(code)


def run_line(arguments: list[str]) -> int:
    """Run one command line; returns the exit code.

    Not by ``cli.main``, which turns a broken pipe into exit code 1: with ``pond run`` that would look like the task's.
    """
    try:
        with cli.make_context("pond", arguments) as context:
            code = cli.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as done:
        return done.exit_code
    except BrokenPipeError:
        # The reader of the output has gone.
        _abandon_output()
        return BROKEN_PIPE
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return error.exit_code
    except click.ClickException as error:
        complain_about_usage(error)
        return error.exit_code
    except MillpondError as error:
        complain(error)
        return error.exit_code
    except OSError as error:
        complain_about_system(error)
        _abandon_output()
        return MillpondError.exit_code
    except Exception as error:
        complain_about_defect(error)
        return InconsistentStateError.exit_code
    return code if isinstance(code, int) else 0


def _open_what_is_closed() -> None:
    """Standard streams that the caller has closed, as daemons do, are empty or lead nowhere: Python has None there."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # its number is the lowest that is free
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def print_what_can_be(stream: TextIO) -> None:
    """Have a question mark written for what the encoding of the terminal lacks, such as a job's output in another."""
    if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
        stream.reconfigure(errors="replace")


def _abandon_output() -> None:
    """Standard output cannot be written: nothing may be flushed into it at exit either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
