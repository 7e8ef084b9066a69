"""Nodes in sentences: a few by name, however many there are."""

from __future__ import annotations

from collections.abc import Sequence

from millpond.scheduling.records import JobRecord

MOST_NAMES = 3
"""Nodes that a sentence names."""


def node_names(names: Sequence[str]) -> str:
    """The first of some nodes by name, and how many more there are."""
    if len(names) <= MOST_NAMES:
        return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    return f"{', '.join(names[:MOST_NAMES])} and {len(names) - MOST_NAMES} more"


def placed_on(record: JobRecord) -> str:
    """Where the tasks of a job are, to stand behind its state; empty where none has a place."""
    nodes = dict.fromkeys(task.placement.node for task in record.tasks if task.placement is not None)
    return f" on {node_names(list(nodes))}" if nodes else ""
