"""Commands that do one thing to each of several jobs: what fails for one is said, and the others get their turn."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from operator import attrgetter

import click

from millpond.client.cli.error_output import complain
from millpond.client.sdk import Client
from millpond.model.errors import ConflictError, InvalidInputError, NotAllowedError, NotFoundError
from millpond.specs.api.jobs.jobs import JobInfo


def require_attended(remedy: str, yes: bool) -> None:
    """Check that questions can be asked, unless ``yes`` is given.

    Raises:
        InvalidInputError: standard input or error is no terminal.
    """
    if not yes and not _is_attended():
        raise InvalidInputError("standard input is no terminal, so nothing can be asked", remedy)


def confirmed(question: str, yes: bool) -> bool:
    """Whether they say yes to a question, or have said it before."""
    return yes or click.confirm(question, default=False, err=True)


def _is_attended() -> bool:
    """Whether questions can be asked: standard input and error are a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def for_each(names: Sequence[str], act: Callable[[str], object]) -> int:
    """Do something for each name; what fails for one is said. Returns the exit code of the last failure, or 0."""
    code = 0
    for name in names:
        try:
            act(name)
        except (NotFoundError, ConflictError, NotAllowedError) as error:
            complain(error)
            code = error.exit_code
    return code


def act_on(
    client: Client,
    jobs: Sequence[str],
    act: Callable[[Client, str], JobInfo],
    describe: Callable[[JobInfo], str] = attrgetter("state"),
) -> int:
    """Do something to each job and print how it is then; returns the exit code of the last failure, or 0.

    Args:
        jobs: ids, or beginnings of ids.
        act: given the connection and a whole id; returns the job as it is afterwards.
        describe: how it is, in words.
    """

    def change(name: str) -> None:
        job = act(client, client.find(name).id)
        click.echo(f"{job.id}: {describe(job)}")

    return for_each(jobs, change)
