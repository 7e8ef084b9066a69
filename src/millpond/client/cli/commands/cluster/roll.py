"""``pond nodes roll``: machines are emptied, changed and opened again, a few at a time.

How far it is lies on the server, as machines that are closed for this reason, and on the machines themselves, which
``--unless`` asks. So the same command goes on where an earlier one stopped.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import click

from millpond.client.cli.connection import with_client
from millpond.client.sdk import Client
from millpond.model.errors import InvalidInputError, NotFoundError
from millpond.specs.api.pool.nodes import NodeInfo

_LOOK_EVERY_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Commands:
    """Lines for ``sh`` of the machine on which one types, with the name of the node in ``NODE``.

    Attributes:
        run: changes a node.
        unless: succeeds for a node that needs no change; empty: all do.
        undo: takes a change back that has failed; empty: such a node stays closed.
    """

    run: str
    unless: str = ""
    undo: str = ""


@click.command("roll")
@click.argument("names", nargs=-1, metavar="[NODE]...")
@click.option("--zone", metavar="ZONE", help="All nodes of a zone.")
@click.option("--pool", metavar="POOL", help="All nodes of a pool.")
@click.option("--at-once", type=click.IntRange(1), default=1, show_default=True, help="So many nodes at a time.")
@click.option("--run", required=True, metavar="COMMAND", help="Changes the node NODE once it is empty.")
@click.option("--unless", default="", metavar="COMMAND", help="Leave nodes out for which it succeeds.")
@click.option("--undo", default="", metavar="COMMAND", help="Takes back on a node what has failed there.")
@click.option("--reason", default="roll", show_default=True, metavar="TEXT", help="Why, for those whose jobs wait.")
@with_client
def roll(
    client: Client,
    names: tuple[str, ...],
    zone: str | None,
    pool: str | None,
    at_once: int,
    reason: str,
    **commands: str,
) -> int:
    """Empty each NODE, change it by a COMMAND, and open it again.

    The command is run here, not on the node: with NODE in it, such as
    'ssh $NODE sudo apt-get -y upgrade'. A node that fails stays closed, and no
    further one is begun. Ctrl-C lets those under way come to their end. The
    same line goes on later.
    """
    chosen = _choose(client.nodes(), names, zone, pool)
    return _Roll(client, Commands(**commands), reason, at_once, chosen).to_the_end(time.sleep)


def _choose(nodes: Sequence[NodeInfo], names: Sequence[str], zone: str | None, pool: str | None) -> list[str]:
    """Names of the nodes that are meant, those with the fewest jobs first: what leaves a node then finds changed ones.

    Raises:
        InvalidInputError: none is.
        NotFoundError: one is named that is not there.
    """
    if not names and zone is None and pool is None:
        raise InvalidInputError("no node is named", "name nodes, or a --zone or a --pool")
    known = {node.name for node in nodes}
    if unknown := [name for name in names if name not in known]:
        raise NotFoundError(f"no node {', '.join(map(repr, unknown))}", "`pond nodes` lists them")
    meant = [
        node
        for node in nodes
        if (not names or node.name in names) and zone in (None, node.zone) and pool in (None, node.pool)
    ]
    if not meant:
        zones = ", ".join(sorted({node.zone for node in nodes if node.zone})) or "none"
        pools = ", ".join(sorted({node.pool for node in nodes})) or "none"
        raise InvalidInputError("no node is in that zone and pool", f"zones: {zones}; pools: {pools}")
    return [node.name for node in sorted(meant, key=lambda node: (len(node.jobs), node.name))]


@dataclass
class _Roll:
    """Nodes on their way, each closed, then changing, then open.

    Attributes:
        waiting: not begun.
        closed: becoming empty.
        changing: what changes them now.
        coming_back: open again, and not yet usable, as after a reboot.
        failed: where the command failed.
        kept_closed: those of them where it was not taken back either.
        paused: no further one is begun.
    """

    client: Client
    commands: Commands
    reason: str
    at_once: int
    waiting: list[str]
    closed: list[str] = field(default_factory=list)
    coming_back: list[str] = field(default_factory=list)
    changing: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    kept_closed: list[str] = field(default_factory=list)
    paused: bool = False

    def to_the_end(self, sleep: Callable[[float], None]) -> int:
        """Go on until nothing is under way that may come to an end."""
        while True:
            try:
                self._look()
                if not (self.closed or self.changing or self.coming_back):
                    return self._told()
                sleep(_LOOK_EVERY_S)
            except KeyboardInterrupt:
                if self.paused:
                    return self._told()
                self.paused = True
                under_way = ", ".join((*self.closed, *self.changing, *self.coming_back))
                click.echo(f"no further node is begun; waiting for {under_way} (Ctrl-C leaves them as they are)")

    def _look(self) -> None:
        nodes = {node.name: node for node in self.client.nodes()}
        for name in [name for name in self.coming_back if name in nodes and nodes[name].schedulable]:
            self.coming_back.remove(name)
            self.done.append(name)
            click.echo(f"{name}: done")
        for name, process in list(self.changing.items()):
            if (code := process.poll()) is not None:
                del self.changing[name]
                self._changed(name, code)
        for name in [name for name in self.closed if name not in nodes or not nodes[name].jobs]:
            self.closed.remove(name)
            click.echo(f"{name}: empty")
            self.changing[name] = self._start(self.commands.run, name)
        while self.waiting and not (self.paused or self.failed):
            if len(self.closed) + len(self.changing) + len(self.coming_back) >= self.at_once:
                return
            self._begin(nodes, self.waiting[0])
            del self.waiting[0]

    def _begin(self, nodes: dict[str, NodeInfo], name: str) -> None:
        closure = nodes[name].closure if name in nodes else None
        if closure is not None and closure.reason != self.reason:
            click.echo(f"{name}: left out, as it is closed already" + (f": {closure.reason}" * bool(closure.reason)))
        elif self.commands.unless and self._start(self.commands.unless, name).wait() == 0:
            click.echo(f"{name}: left out, as it needs no change")
            if closure is not None:
                self._open(name)
        else:
            node = self.client.close_node(name, reason=self.reason, drain=True)
            click.echo(f"{name}: draining" + (f"; waits for {', '.join(node.jobs)}" if node.jobs else ""))
            self.closed.append(name)

    def _changed(self, name: str, code: int) -> None:
        if code == 0:
            self._open(name)
            return
        self.failed.append(name)
        click.echo(f"{name}: the command failed with {code}")
        if self.commands.undo and self._start(self.commands.undo, name).wait() == 0:
            click.echo(f"{name}: taken back")
            self.client.open_node(name)
        else:
            self.kept_closed.append(name)

    def _open(self, name: str) -> None:
        self.client.open_node(name)
        self.coming_back.append(name)

    def _start(self, line: str, name: str) -> subprocess.Popen[bytes]:
        """Out of reach of Ctrl-C: what is half changed is worse than what is late."""
        return subprocess.Popen(["sh", "-c", line], env=os.environ | {"NODE": name}, start_new_session=True)

    def _told(self) -> int:
        """Say how it ended. Returns the exit code."""
        left = [*self.closed, *self.changing, *self.coming_back, *self.waiting]
        parts = [f"{len(self.done)} done"]
        parts += [f"failed: {', '.join(self.failed)}"] if self.failed else []
        parts += [f"closed: {', '.join(self.kept_closed)} (`pond nodes uncordon` opens)"] if self.kept_closed else []
        parts += [f"left: {', '.join(left)}"] if left else []
        click.echo("; ".join(parts))
        return 1 if self.failed or left else 0
