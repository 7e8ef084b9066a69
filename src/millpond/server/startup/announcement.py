"""What a server says on its terminal when it is up."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from millpond.model.nodes import Node
from millpond.node.host.machine import Machine
from millpond.server.http.server import is_loopback
from millpond.server.http.tls import Encryption
from millpond.server.runtime.inbox import wall_clock
from millpond.server.startup.isolation import Isolation
from millpond.specs.config.listening import ListenRules


def notes_on_machine(machine: Machine, isolation: Isolation, unshared: str) -> list[str]:
    """What is said of the machine when the server is up.

    Args:
        unshared: why slices and swapping are refused; empty where they are not.
    """
    apart = isolation.apart.trouble
    return [
        *(machine.notes or (_summary(machine.nodes),)),
        *([f"jobs are not kept apart from each other: {apart}"] if apart else []),
        *([f"no card is shared out: {unshared}"] if unshared else []),
        *([isolation.warning] if isolation.warning else []),
    ]


def notes_on_the_way(host: str, listening: ListenRules, encryption: Encryption | None) -> list[str]:
    """What is said of the way that requests take."""
    notes = []
    if encryption is not None:
        notes.append(encryption.certificate.trouble(wall_clock()))
    if not listening.is_encrypted and not is_loopback(host):
        notes.append(
            "requests from elsewhere are not encrypted: set listen.certificate and listen.key, or put a proxy in front "
            "and name it in listen.trusted_proxies (docs/security.md)"
        )
    return [note for note in notes if note]


def first_login_notes(invitation: Path | None) -> list[str]:
    """How to log in from elsewhere for the first time; the secret itself on a terminal only, never in a log."""
    if invitation is None:
        return []
    how = "first login from elsewhere: pond login URL --invitation"
    return [f"{how}, and this: {invitation.read_text().strip()}" if sys.stdout.isatty() else f"{how}; see {invitation}"]


def _summary(nodes: Sequence[Node]) -> str:
    cards = [device for node in nodes for device in node.devices]
    return f"{len(nodes)} node{'s' * (len(nodes) != 1)}, {len(cards)} GPU{'s' * (len(cards) != 1)}"
