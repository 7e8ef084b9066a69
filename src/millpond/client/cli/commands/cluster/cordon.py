"""``pond nodes cordon, drain, maintain, uncordon``: machines that take no new work for a while."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from millpond.client.cli.connection import asks_server, connect
from millpond.client.cli.error_output import complain
from millpond.client.cli.printing import formats
from millpond.client.cli.printing.formats import machine_state
from millpond.client.sdk import Client
from millpond.model.errors import ConflictError, NotFoundError
from millpond.specs.api.nodes import NodeInfo

_machines = click.argument("names", nargs=-1, required=True, metavar="NODE...")
_reason = click.option("--reason", default="", metavar="TEXT", help="Why, for those whose jobs wait.")


def _until(required: bool = False) -> Callable[..., Any]:
    text = "When it opens by itself: 2h, or 2026-11-22T08:00" + ("." if required else " [default: on `uncordon`].")
    return click.option("--until", metavar="WHEN", required=required, help=text)


@click.command("cordon")
@_machines
@_reason
@_until()
@asks_server
def cordon(names: tuple[str, ...], reason: str, until: str | None, state_dir: Path | None) -> int:
    """Start nothing new on each NODE; running work goes on."""
    end = _end(until)
    return _change(names, state_dir, lambda client, name: client.close_node(name, reason=reason, until=end))


@click.command("drain")
@_machines
@_reason
@_until()
@asks_server
def drain(names: tuple[str, ...], reason: str, until: str | None, state_dir: Path | None) -> int:
    """Empty each NODE: nothing new starts there, and preemptible work leaves.

    It gets notice and its grace period, and runs again from its queue. Other work may go on to its end.
    """
    end = _end(until)
    return _change(names, state_dir, lambda client, name: client.close_node(name, reason=reason, until=end, drain=True))


@click.command("maintain")
@_machines
@_reason
@click.option("--from", "begin", metavar="WHEN", required=True, help="When it is emptied: 2h, or 2026-11-22T08:00.")
@_until(required=True)
@asks_server
def maintain(names: tuple[str, ...], reason: str, begin: str, until: str, state_dir: Path | None) -> int:
    """Plan to empty each NODE.

    Work that is known to run into that time does not start there from now on, unless it may be preempted and saves
    itself on notice.
    """
    first, end = formats.parse_date_or_span(begin, "--from", time.time()), _end(until)
    return _change(
        names, state_dir, lambda client, name: client.close_node(name, reason=reason, until=end, begin=first)
    )


@click.command("uncordon")
@_machines
@click.option("--planned", is_flag=True, help="Give up what is planned for it, too.")
@asks_server
def uncordon(names: tuple[str, ...], planned: bool, state_dir: Path | None) -> int:
    """Let new work start on each NODE again."""
    return _change(names, state_dir, lambda client, name: client.open_node(name, planned=planned))


def _end(until: str | None) -> float | None:
    return None if until is None else formats.parse_date_or_span(until, "--until", time.time())


def _change(names: Sequence[str], state_dir: Path | None, act: Callable[[Client, str], NodeInfo]) -> int:
    """Do it to each machine; what fails for one is said, and the others get their turn."""
    code = 0
    with connect(state_dir) as client:
        for name in names:
            try:
                node = act(client, name)
            except (NotFoundError, ConflictError) as error:
                complain(error)
                code = error.exit_code
                continue
            click.echo(f"{node.name}: {machine_state(node)}")
    return code
