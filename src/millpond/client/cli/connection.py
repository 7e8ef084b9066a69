"""What every command that talks to a server shares: which server, and how jobs are named to it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from millpond.client.cli.error_output import say
from millpond.client.sdk import Client

state_dir_option = click.option(
    "--state-dir",
    type=click.Path(path_type=Path),
    help="Directory of the server that is meant [default: $MILLPOND_STATE or ~/.local/state/millpond].",
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
