"""``pond up``: the server on this machine, in this terminal or in the background."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Final

import click

from millpond.client.cli.commands.server import background
from millpond.client.cli.connection import state_dir_option
from millpond.client.cli.error_output import say
from millpond.client.cli.finite_numbers import FiniteNumber
from millpond.client.cli.policy_options import OrderingChoice, PlacementChoice
from millpond.client.sdk import Client, default_state_dir
from millpond.model.amounts import count_text
from millpond.server.http.listener import listen
from millpond.server.startup.options import DEFAULT_HOST, DEFAULT_PORT, FORGET, GROUP_MODES, LOG_FORMATS, SANDBOX_MODES
from millpond.server.state_dir import StateDir
from millpond.specs.api.pool.nodes import NodeInfo
from millpond.specs.api.server import FIRST_LOGIN_FILE

_WITHOUT_CARDS: Final = {
    "local": "`pond doctor` says why, and `--fake-gpus 4x8:V100-32GB` pretends some",
    "kubernetes": "`pond kube check` says why",
}
"""What helps, by the engine of the server."""
_SWITCHES: Final = ("preempt", "reserve")
"""They may be off, on, or as before."""


def _config_file(_context: click.Context, _option: click.Parameter, path: Path | None) -> Path | None:
    if path is not None and str(path) != FORGET and not path.is_file():
        raise click.BadParameter(f"there is no file {str(path)!r}")
    return path


@click.command("up")
@click.option("--host", default=DEFAULT_HOST, show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    envvar="MILLPOND_PORT",
    help="Port to listen on; 0 takes a free one.",
)
@state_dir_option
@click.option(
    "--fake-gpus",
    metavar="SPEC",
    help="Pretend cards, such as 8:A100-80GB or 4x8:V100-32GB (nodes x cards : model); none: the machine's own "
    "[default: as at the last start].",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    callback=_config_file,
    help="Pools and queues (YAML); none: without [default: as at the last start].",
)
@click.option("--ordering", type=OrderingChoice(), help="Who is next [default: as before, at first 'default'].")
@click.option("--placement", type=PlacementChoice(), help="Where it goes [default: as before, at first 'default'].")
@click.option(
    "--preempt/--no-preempt",
    default=None,
    help="Whether running work ends for work that the ordering puts first [default: as before, at first no].",
)
@click.option(
    "--reserve/--no-reserve",
    default=None,
    help="Whether room is kept for the first job that does not fit [default: as before, at first yes].",
)
@click.option(
    "--store",
    metavar="URL",
    help="PostgreSQL database to remember in; none: SQLite [default: as at the last start, at first SQLite].",
)
@click.option("--standby", is_flag=True, help="Wait while another server leads on the same --store, then take over.")
@click.option(
    "--take-over", is_flag=True, help="With a copied or restored state: go on in place of the original, which is gone."
)
@click.option(
    "--sandbox",
    type=click.Choice(SANDBOX_MODES),
    default="auto",
    show_default=True,
    help="Keep jobs apart from each other and from the server's state, by bubblewrap; auto: required from the second "
    "person on.",
)
@click.option(
    "--control-groups",
    type=click.Choice(GROUP_MODES),
    default="auto",
    show_default=True,
    help="Keep all processes of a task to its CPUs and memory; auto: where the server was given its control group.",
)
@click.option("--keep-jobs", type=FiniteNumber(min=0), metavar="DAYS", help="Forget jobs that ended longer ago.")
@click.option(
    "--keep-logs-gib", type=FiniteNumber(min=0), metavar="GIB", help="Remove the oldest output when there is more."
)
@click.option(
    "--keep-free-gib",
    type=FiniteNumber(min=0),
    metavar="GIB",
    help="Start nothing while less disk is free [default: 1, on small disks 2 % of them].",
)
@click.option(
    "--log-format", type=click.Choice(LOG_FORMATS), default="text", show_default=True, help="Form of the server's log."
)
@click.option("--stop-jobs-on-exit", is_flag=True, help="End running jobs when the server ends.")
@click.option("-d", "--detach", is_flag=True, help="Run in the background; `pond down` stops it.")
def command(host: str, port: int, state_dir: Path | None, standby: bool, detach: bool, **others: Any) -> int:
    """Start the server on this machine.

    It runs in this terminal until Ctrl-C; its jobs go on, and the next `pond up` takes them over.
    """
    directory = (state_dir or default_state_dir()).absolute()
    options = {"host": host, "port": port, "state_dir": directory, "standby": standby, **others}
    arguments = [word for name, value in options.items() for word in _words(name, value)]
    _require_room(directory, host, port, standby)
    if detach:
        _start_detached(arguments, directory)
        return 0
    from millpond.server.startup.process import run

    return run(arguments)


def _words(name: str, value: object) -> list[str]:
    """An option as the server's process reads it; none if it was left out."""
    option = name.replace("_", "-")
    match value:
        case None:
            return []
        case True:
            return [f"--{option}"]
        case False:
            return [f"--no-{option}"] if name in _SWITCHES else []
        case _:
            return [f"--{option}", str(value)]


def _require_room(directory: Path, host: str, port: int, standby: bool) -> None:
    """Refuse what another server has, before seconds are spent on loading this one; it asks again when it starts.

    Raises:
        UnavailableError: another server uses the state directory, or the port cannot be had.
    """
    with contextlib.nullcontext() if standby else StateDir(directory), listen(host, port):
        pass


def _start_detached(arguments: list[str], directory: Path) -> None:
    started = background.start(arguments, directory)
    if started.health.standby:
        click.echo(f"Millpond stands by at {started.left.url}; {started.health.who_leads}")
        return
    click.echo(f"Millpond is up at {started.left.url}")
    try:
        _introduce(directory)
    except BaseException:  # whatever it is: who reads of it must know that a server is there
        say("the server runs on; `pond down` ends it")
        raise


def _introduce(directory: Path) -> None:
    """Say what a server that has come up is like, and how people come in."""
    with Client(state_dir=directory) as client:
        server = client.server()
        click.echo(summary(client.nodes(), server.engine))
        click.echo(f"portal: {client.accounts.portal_link().url} (works once, for ten minutes)")
    if server.apart:
        click.echo(server.apart)
    for note in server.notes:
        click.echo(note)
    if server.unsandboxed:
        click.echo(f"jobs are not kept apart from each other: {server.unsandboxed}")
    if server.unshared:
        click.echo(f"no card is shared out: {server.unshared}")
    invitation = directory / FIRST_LOGIN_FILE
    if invitation.exists():
        secret = invitation.read_text().strip()
        click.echo(f"first login from elsewhere: pond login URL --invitation, and this: {secret}")


def summary(nodes: list[NodeInfo], engine: str) -> str:
    """One line about the machines; pretended cards are called so.

    Args:
        engine: see ``ServerInfo``.
    """
    cards = [device for node in nodes for device in node.devices]
    fake = sum(device.fake for device in cards)
    parts = [count_text(len(nodes), "node"), count_text(len(cards), "card")]
    if nodes and not cards:
        parts[-1] += f": {_WITHOUT_CARDS[engine]}"
    if fake:
        parts.append("all fake (pretended, no GPU is used)" if fake == len(cards) else f"{fake} of them fake")
    return ", ".join(parts)
