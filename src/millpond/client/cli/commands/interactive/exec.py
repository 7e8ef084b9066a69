"""``pond exec`` and ``pond attach``: a command or a shell beside a running task, as if typed where the task runs."""

from __future__ import annotations

import os
from pathlib import Path

import click

from millpond.client.cli.connection import connect, job_argument, state_dir_option
from millpond.client.cli.terminal import streams
from millpond.client.cli.terminal.interrupts import with_termination
from millpond.client.sdk.sessions import Order, Session
from millpond.model.errors import InvalidInputError

SHELL = ("/bin/sh", "-c", 'exec "${SHELL:-/bin/sh}" -i')
task_option = click.option(
    "--task", type=click.IntRange(min=0), default=0, show_default=True, help="Number of the task."
)


@click.command("exec")
@job_argument("job", metavar="JOB")
@task_option
@click.option("-t/-T", "--tty/--no-tty", default=None, help="Give it a terminal or not [default: if this is one].")
@click.option("-n", "--no-input", is_flag=True, help="Leave standard input alone.")
@click.argument("words", nargs=-1, required=True, metavar="[--] COMMAND...")
@state_dir_option
def command(
    job: str, task: int, tty: bool | None, no_input: bool, words: tuple[str, ...], state_dir: Path | None
) -> int:
    """Run COMMAND in a task of JOB, in its directory and with its variables and cards; exits with its exit code.

    It belongs to the task: it is suspended with it, and ends with it.
    """
    wanted = streams.is_terminal() and not no_input if tty is None else tty
    return run_beside(state_dir, job, task, words, tty=wanted, reads_input=not no_input)


@click.command("attach")
@job_argument("job", metavar="JOB")
@task_option
@state_dir_option
def attach(job: str, task: int, state_dir: Path | None) -> int:
    """Open a shell in a task of JOB, in its directory and with its variables and cards.

    Leaving the shell leaves the job alone.
    """
    if not streams.is_terminal():
        raise InvalidInputError("this is no terminal", f"use pond exec {job} -- COMMAND")
    return run_beside(state_dir, job, task, SHELL, tty=True, reads_input=True)


def run_beside(
    state_dir: Path | None, job: str, task: int, words: tuple[str, ...], *, tty: bool, reads_input: bool
) -> int:
    """Run a command beside a task with this terminal's input and output; returns its exit code.

    Raises:
        ConflictError: the task does not run.
    """
    window = None
    if tty:
        window = streams.window() if streams.is_terminal() else streams.USUAL_WINDOW
    order = Order(words, window, os.environ.get("TERM", ""))
    with connect(state_dir) as client:
        name = client.find(job).id
        address = client.address
    with with_termination(), Session(address, name, task, order) as session:
        return streams.connect_streams(session, interactive=tty and streams.is_terminal(), reads_input=reads_input)
