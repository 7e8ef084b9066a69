"""``pond up``: the server on this machine, in this terminal or in the background."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Final

import click

from millpond.client.cli.commands.server import background
from millpond.client.cli.error_output import echo_wrapped, say
from millpond.client.sdk import Client
from millpond.model.amounts import count_text
from millpond.server.http.listener import listen
from millpond.server.startup.command_line import OPTIONS, options_of, words_of
from millpond.server.startup.options import FORGET, ServerOptions
from millpond.server.state_dir import StateDir
from millpond.specs.api.pool.nodes import NodeInfo
from millpond.specs.api.server import FIRST_LOGIN_FILE, first_login_text

_WITHOUT_CARDS: Final = {
    "local": "`pond doctor` says why, and `--fake-gpus 4x8:V100-32GB` pretends some",
    "kubernetes": "`pond kube check` says why",
}
"""What helps, by the engine of the server."""


@click.command("up", params=list(OPTIONS))
@click.option("-d", "--detach", is_flag=True, help="Run in the background; `pond down` stops it.")
def command(detach: bool, **given: Any) -> int:
    """Start the server on this machine.

    It runs in this terminal until Ctrl-C; its jobs go on, and the next `pond up` takes them over.
    """
    options = options_of(given).absolute()
    _require_config(options.config)
    _require_room(options)
    if detach:
        _start_detached(options)
        return 0
    from millpond.server.startup.process import run

    return run(options)


def _require_config(path: Path | None) -> None:
    if path is not None and str(path) != FORGET and not path.is_file():
        raise click.BadParameter(f"there is no file {str(path)!r}", param_hint="'--config'")


def _require_room(options: ServerOptions) -> None:
    """Refuse what another server has, before seconds are spent on loading this one; it asks again when it starts.

    Raises:
        UnavailableError: another server uses the state directory, or the port cannot be had.
    """
    state = contextlib.nullcontext() if options.standby else StateDir(options.state_dir)
    with state, listen(options.host, options.port):
        pass


def _start_detached(options: ServerOptions) -> None:
    directory = options.state_dir
    started = background.start([*words_of(options)], directory)
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
        echo_wrapped(summary(client.nodes(), server.engine))
        click.echo(f"portal: {client.accounts.portal_link().url} (works once, for ten minutes)")
        listen = client.settings().settings.get("listen") or {}
    if server.apart:
        echo_wrapped(server.apart)
    for note in server.notes:
        echo_wrapped(note)
    if server.unsandboxed:
        echo_wrapped(f"jobs are not kept apart from each other: {server.unsandboxed}")
    if server.unshared:
        echo_wrapped(f"no card is shared out: {server.unshared}")
    invitation = directory / FIRST_LOGIN_FILE
    if invitation.exists():
        secret = invitation.read_text().strip()
        echo_wrapped(f"{first_login_text(listen.get('public_url', ''))}, and this: {secret}")


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
