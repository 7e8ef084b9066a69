"""Containers of ended tasks: kept for a while, so that a user can look into one or save it, then removed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from millpond.node.containers.container import ask
from millpond.node.containers.detection import Containers
from millpond.node.task.records import running_records

_WITHIN_S: Final = 60.0


def drop_ended(containers: Containers, state: str, before: float) -> int:
    """Drop the containers of a state directory that ended before an instant; returns how many.

    Args:
        state: as ``state_mark`` gives it.
        before: seconds since 1970.
    """
    listing = containers.runtime.ended(state)
    if not listing:
        return 0
    dropped = 0
    for name in _printed(containers, listing):
        output = _printed(containers, containers.runtime.end_of(name))
        if output and datetime.fromisoformat(json.loads(output[0])).timestamp() < before:
            _printed(containers, containers.runtime.remove(name))
            dropped += 1
    return dropped


def drop_lost(containers: Containers, state: str, state_dir: Path) -> int:
    """Drop the containers of a state directory that run in their runtime's books alone; returns how many.

    Podman learns of an end by a monitor process. Where that was killed, it takes the container for running for ever.

    Args:
        state: as ``state_mark`` gives it.
    """
    listing = containers.runtime.running(state)
    names = set(_printed(containers, listing)) if listing else set()
    names -= {record.container for record in running_records(state_dir)}
    if not names:
        return 0
    lost = names.intersection(_printed(containers, listing))  # the others have ended in between, and are kept as usual
    for name in lost:
        _printed(containers, containers.runtime.remove(name))
    return len(lost)


def _printed(containers: Containers, command: Sequence[str]) -> list[str]:
    """The lines that a command prints; none when it fails, as when the container went meanwhile."""
    done = ask(command, containers.env, _WITHIN_S)
    return done.stdout.split("\n")[:-1] if done.returncode == 0 else []
