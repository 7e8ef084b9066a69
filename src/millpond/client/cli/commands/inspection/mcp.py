"""``pond mcp``: the pool for agents, through the Model Context Protocol on standard input and output."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import click

from millpond.client.cli.connection import connect, state_dir_option
from millpond.model.errors import UnavailableError


@click.command("mcp")
@click.option("--write", is_flag=True, help="Let agents submit and change jobs, too.")
@state_dir_option
def command(write: bool, state_dir: Path | None) -> None:
    """Answer an agent's questions about jobs, queues and the pool.

    Agents start it themselves; it speaks the Model Context Protocol on standard
    input and output, with the rights of who starts it.
    """
    if find_spec("mcp") is None:
        raise UnavailableError("the package for agents is not installed", "pip install 'millpond[mcp]'")
    connect(state_dir).close()  # a server that is not there is told at once, before the package is loaded
    from millpond.client.cli.agent_tools import agent_server

    agent_server(lambda: connect(state_dir, timeout_s=120.0), may_write=write).run()
