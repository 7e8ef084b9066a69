"""What every command that talks to a server shares: which server, and how jobs are named to it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from millpond.client.cli.error_output import say
from millpond.client.sdk import Client
from millpond.model.errors import MillpondError
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
    type=click.Path(path_type=Path),
    help=STATE_DIR_HELP,
)


def with_client(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command that option, and instead of its value a connection to that server as the first argument."""

    @state_dir_option
    @functools.wraps(command)
    def connected(state_dir: Path | None, **arguments: Any) -> Any:
        with connect(state_dir) as client:
            return command(client, **arguments)

    return connected


def connect(state_dir: Path | None, timeout_s: float = 15.0) -> Client:
    """A connection to the server that is meant.

    Args:
        timeout_s: how long one answer may take.

    Raises:
        UnavailableError: none is running.
    """
    return Client(state_dir=state_dir, timeout_s=timeout_s, notify=say)


def job_argument(name: str, **attributes: Any) -> Callable[[Any], Any]:
    """An argument of a command that names a job, or several."""
    return click.argument(name, shell_complete=complete_job, **attributes)


def complete_job(context: click.Context, _argument: click.Parameter, begun: str) -> list[CompletionItem]:
    """The newest jobs whose ids, or else whose names, begin so, for the shell; none whatever goes wrong."""
    try:
        with Client(state_dir=context.params.get("state_dir"), timeout_s=_COMPLETED_WITHIN_S) as client:
            jobs = client.jobs(ended=context.info_name not in _OF_LIVING, limit=_MOST).jobs
    except (MillpondError, OSError):
        return []
    found = {job.id if job.id.startswith(begun) else job.name: job.state for job in reversed(jobs)}
    return [CompletionItem(name, help=state) for name, state in found.items() if name and name.startswith(begun)]
