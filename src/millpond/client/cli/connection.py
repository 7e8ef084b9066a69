"""What every command that talks to a server shares: which server, and how jobs are named to it."""

from __future__ import annotations

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


def asks_server(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the option that says which server it asks."""
    return state_dir_option(command)


def connect(state_dir: Path | None) -> Client:
    """A connection to the server that is meant.

    Raises:
        UnavailableError: none is running.
    """
    return Client(state_dir=state_dir, notify=say)
