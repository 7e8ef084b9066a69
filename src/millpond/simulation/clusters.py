"""Clusters to replay on: ``NxG`` in a word, or a node list."""

from __future__ import annotations

import re
from collections.abc import Sequence

from millpond.model.errors import InvalidInputError
from millpond.model.hardware.devices import Device
from millpond.model.hardware.nodes import Node
from millpond.model.resources import CARD_MILLI

CPU_PER_CARD_MILLI = 12_000
MEMORY_PER_CARD_MIB = 64 * 1024
MOST_NODES = 1_000_000
MOST_CARDS_PER_NODE = 64

_MEMORY = re.compile(r"-(\d+)GB$")
_SHAPE = re.compile(r"(\d+)[xX](\d+)(?::([\w.-]+))?")


def uniform_cluster(text: str) -> tuple[Node, ...]:
    """Nodes of ``NxG`` or ``NxG:MODEL``: N nodes of G cards, each card with 12 cores and 64 GiB beside it.

    A model that ends like ``-32GB`` gives the memory of its cards; twice as much host memory takes what is swapped.

    Raises:
        InvalidInputError: another form, or numbers outside 1..1,000,000 nodes and 1..64 cards.
    """
    match = _SHAPE.fullmatch(text.strip())
    if match is None:
        raise InvalidInputError(f"a cluster of {text!r}", "write nodes x cards, such as 30x8 or 30x8:V100")
    count, cards, model = int(match[1]), int(match[2]), match[3] or "GPU"
    if not (1 <= count <= MOST_NODES and 1 <= cards <= MOST_CARDS_PER_NODE):
        raise InvalidInputError(
            f"a cluster of {count} nodes with {cards} cards each",
            f"use 1 to {MOST_NODES} nodes of 1 to {MOST_CARDS_PER_NODE} cards",
        )
    width = len(str(count - 1))
    return tuple(_node(f"node-{index:0{width}d}", cards, model) for index in range(count))


def cards_per_node(nodes: Sequence[Node]) -> int:
    """Cards of the largest node: the size by which larger jobs are cut into tasks; 1 where there are none."""
    return max((len(node.devices) for node in nodes), default=0) or 1


def capacity_milli(nodes: Sequence[Node]) -> int:
    """All GPU compute of the nodes."""
    return sum(len(node.devices) for node in nodes) * CARD_MILLI


def _node(name: str, cards: int, model: str) -> Node:
    found = _MEMORY.search(model)
    memory_mib = int(found[1]) * 1024 if found else 0
    devices = tuple(Device(f"{name}/{index}", index, "trace", model, memory_mib) for index in range(cards))
    swap_mib = 2 * cards * memory_mib
    return Node(name, cards * CPU_PER_CARD_MILLI, cards * MEMORY_PER_CARD_MIB, devices, swap_mib=swap_mib)
