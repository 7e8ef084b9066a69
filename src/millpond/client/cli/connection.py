"""What every command that talks to a server shares: which server, how jobs are named to it, and one act on several."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from millpond.client.cli.error_output import complain, say
from millpond.client.cli.path_parameter import PathParameter
from millpond.client.sdk import Client
from millpond.model.errors import ConflictError, InvalidInputError, MillpondError, NotAllowedError, NotFoundError
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.base_directories import STATE_DIR_HELP

_COMPLETED_WITHIN_S: Final = 2.0
_MOST: Final = 500
_OF_LIVING: Final = frozenset(
    [
        "stop",
        "suspend",
        "resume",
        "priority",
        "migrate",
        "resize",
        "exec",
        "attach",
        "forward",
        "wait",
        "open",
        "extend",
        "ssh",
    ]
)
"""Commands that can do nothing for a job that has ended."""

state_dir_option = click.option(
    "--state-dir",
    type=PathParameter(),
    help=STATE_DIR_HELP,
)


def with_client(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the option ``--state-dir``, and a connection to that server as its first argument."""

    @state_dir_option
    @functools.wraps(command)
    def connected(state_dir: Path | None, **arguments: Any) -> Any:
        with connect(state_dir) as client:
            return command(client, **arguments)

    return connected


def connect(state_dir: Path | None, timeout_s: float = 15.0) -> Client:
    """A connection to the server of a state directory, or to the one that ``find_server`` finds.

    Args:
        timeout_s: how long one answer may take.

    Raises:
        UnavailableError: none is running.
    """
    return Client(state_dir=state_dir, timeout_s=timeout_s, notify=say)


def job_argument(name: str, **attributes: Any) -> Callable[[Any], Any]:
    """An argument of a command that names a job, or several."""
    return click.argument(name, shell_complete=complete_job, **attributes)


def choosing_option(name: str, **attributes: Any) -> Callable[[Any], Any]:
    """An option that leaves of several jobs those that it names; where it stands, it must name something.

    As ``--name "$EXPERIMENT"`` it would choose all jobs where the variable is empty.
    """
    return click.option(name, default="", callback=not_empty, **attributes)


def not_empty(context: click.Context, option: click.Parameter, value: str) -> str:
    """The value of such an option.

    Raises:
        InvalidInputError: it is written, and empty.
    """
    is_given = context.get_parameter_source(option.name or "") is not ParameterSource.DEFAULT
    if is_given and not value:
        raise InvalidInputError(f"{option.opts[0]} names nothing", "leave it out; a variable of the shell may be empty")
    return value


def complete_job(context: click.Context, _argument: click.Parameter, begun: str) -> list[CompletionItem]:
    """The newest jobs whose ids, or else whose names, begin so, for the shell; none whatever goes wrong."""
    try:
        with Client(state_dir=context.params.get("state_dir"), timeout_s=_COMPLETED_WITHIN_S) as client:
            jobs = client.jobs(ended=context.info_name not in _OF_LIVING, limit=_MOST).jobs
    except (MillpondError, OSError):
        return []
    found = {job.id if job.id.startswith(begun) else job.name: job.state for job in reversed(jobs)}
    return [CompletionItem(name, help=state) for name, state in found.items() if name and name.startswith(begun)]


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
