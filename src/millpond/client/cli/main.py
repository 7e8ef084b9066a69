"""The entry point of ``pond``: finds the command, runs it, and turns every error into a line that helps.

A command's module is imported when the command is used, never before: ``pond --help`` and ``pond --version`` read the
table below and load click alone.
"""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import dataclass
from difflib import get_close_matches

import click

from millpond.client.cli.complaints import (
    BROKEN_PIPE,
    INTERRUPTED,
    complain,
    complain_about_defect,
    complain_about_usage,
)
from millpond.model.errors import InconsistentStateError, MillpondError


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a command lives, and the line that ``pond --help`` shows for it."""

    target: str
    help: str


COMMANDS = {
    "up": Entry("millpond.client.cli.up:command", "Start the server on this machine."),
    "down": Entry("millpond.client.cli.down:command", "Stop the server, and its jobs with it."),
    "run": Entry("millpond.client.cli.run:command", "Run a command in the pool and follow its output."),
    "submit": Entry("millpond.client.cli.submit:command", "Hand in a job file; prints the job's id."),
    "apply": Entry("millpond.client.cli.apply:command", "Show what would become of a job, then hand it in."),
    "ps": Entry("millpond.client.cli.ps:command", "List jobs."),
    "logs": Entry("millpond.client.cli.logs:command", "Print what a job wrote."),
    "get-output": Entry("millpond.client.cli.output_files:get_output", "Fetch what a job left in its output folder."),
    "output": Entry("millpond.client.cli.output_files:group", "List what a job left (`output ls JOB`)."),
    "metrics": Entry("millpond.client.cli.metrics:command", "Print what a job reported of itself."),
    "data": Entry("millpond.client.cli.data:group", "Put, list and remove named datasets."),
    "get": Entry("millpond.client.cli.get:command", "Show how far a job has come, and everything about it."),
    "events": Entry("millpond.client.cli.events:command", "Tell what happened and what was decided."),
    "why": Entry("millpond.client.cli.why:command", "Tell why a job waits or runs, and what would help."),
    "wait": Entry("millpond.client.cli.wait:command", "Wait for a job's end; exits with its exit code."),
    "stop": Entry("millpond.client.cli.stop:command", "End jobs."),
    "clone": Entry("millpond.client.cli.clone:command", "Hand in a job once more, with changes."),
    "delete": Entry("millpond.client.cli.delete:command", "Drop ended jobs and all that they wrote."),
    "suspend": Entry("millpond.client.cli.suspend:command", "Halt jobs where they are."),
    "resume": Entry("millpond.client.cli.resume:command", "Let suspended jobs go on."),
    "resize": Entry("millpond.client.cli.resize:command", "Give an elastic job another number of tasks."),
    "exec": Entry("millpond.client.cli.exec:command", "Run a command beside a running task."),
    "attach": Entry("millpond.client.cli.attach:command", "Open a shell beside a running task."),
    "forward": Entry("millpond.client.cli.forward:command", "Reach a port of a running task from here."),
    "dev": Entry("millpond.client.cli.dev:command", "Start a place to work: a notebook, an editor, a shell."),
    "template": Entry("millpond.client.cli.template:command", "Show ready job files."),
    "nodes": Entry("millpond.client.cli.nodes:command", "List machines and what is free; close, empty and open them."),
    "usage": Entry("millpond.client.cli.usage:command", "Tell who held how much, for how long, and what it costs."),
    "webhooks": Entry("millpond.client.cli.webhooks:command", "List what was told to other programs."),
    "doctor": Entry(
        "millpond.client.cli.doctor:command", "Look what works on this machine, and what would mend the rest."
    ),
    "config": Entry("millpond.client.cli.config:command", "Check the server's configuration file."),
    "backup": Entry("millpond.client.cli.backup:backup", "Write everything the server remembers to a file."),
    "restore": Entry("millpond.client.cli.backup:restore", "Put a backup back into an empty state directory."),
    "service": Entry("millpond.client.cli.service:command", "Run the server as a service of systemd."),
    "login": Entry("millpond.client.cli.login:login", "Log in at a server, by password or invitation."),
    "logout": Entry("millpond.client.cli.login:logout", "Forget the login, and have the server forget it."),
    "whoami": Entry("millpond.client.cli.login:whoami", "Tell who one is to the server."),
    "user": Entry("millpond.client.cli.users:group", "Users: add, list, change, disable; one's own password."),
    "group": Entry("millpond.client.cli.groups:group", "Groups: add, list, limit; who is in them."),
    "token": Entry("millpond.client.cli.tokens:group", "Tokens: create, list, revoke."),
    "audit": Entry("millpond.client.cli.audit:command", "Tell who changed what."),
    "replay": Entry("millpond.client.cli.replay:command", "Play a cluster trace through the scheduler."),
    "compare": Entry("millpond.client.cli.compare:command", "Compare policies on a trace; writes an HTML page."),
}


class LazyGroup(click.Group):
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

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            near = get_close_matches(name, COMMANDS, n=1, cutoff=0.5)
            hint = f"did you mean `pond {near[0]}`?" if near else "`pond --help` lists the commands"
            raise click.UsageError(f"no command {name!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])


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
    if "_POND_COMPLETE" in os.environ:
        cli.main(prog_name="pond")
    sys.exit(_run(sys.argv[1:]))


def _run(arguments: list[str]) -> int:
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
        # Whoever read our output has seen enough.
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
        _abandon_output()
        complain(MillpondError(f"the system says: {error}"))
        return MillpondError.exit_code
    except Exception as error:
        complain_about_defect(error)
        return InconsistentStateError.exit_code
    return code if isinstance(code, int) else 0


def _abandon_output() -> None:
    """Standard output cannot be written: nothing may be flushed into it at exit either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
