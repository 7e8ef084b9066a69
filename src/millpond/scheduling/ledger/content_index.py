"""What nodes hold of images, data sets and models, as they report it, and how long they fetch what they lack.

By name of the node, so that it outlives a change of its devices. A node that reports nothing counts as one that holds
nothing and fetches at the slowest known rate; while no node has reported a rate, nothing is known of any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from millpond.model.contents import MOST_CONTENTS, Content
from millpond.model.events import NodeContents


class HeldContents(NamedTuple):
    """What one node reports.

    Attributes:
        sizes: bytes of what it holds, by name.
        fetch_rate: bytes per second.
    """

    sizes: dict[str, int]
    fetch_rate: int


class ContentIndex:
    """The contents of one ledger's nodes.

    Attributes:
        of_nodes: by name of the node.
        version: rises with each change.
    """

    def __init__(self) -> None:
        self.of_nodes: dict[str, HeldContents] = {}
        self.version = 0
        self._holders: dict[str, dict[str, int]] = {}
        """By name of a content: how large it is on which nodes."""

    def note(self, event: NodeContents) -> None:
        """A node that is there has reported what it holds."""
        sizes = {content.name: content.bytes for content in event.contents[:MOST_CONTENTS]}
        self._put(event.node, HeldContents(sizes, max(event.fetch_rate, 0)))

    def forget(self, node: str) -> None:
        """A node is gone."""
        before = self.of_nodes.pop(node, None)
        if before is None:
            return
        self.version += 1
        for name in before.sizes:
            holders = self._holders[name]
            del holders[node]
            if not holders:
                del self._holders[name]

    def holders(self, name: str) -> Mapping[str, int]:
        """The nodes that hold a content, with its size there."""
        return self._holders.get(name, {})

    def fetch_s(self, contents: Sequence[Content], nodes: Sequence[str]) -> list[float] | None:
        """Seconds for which each of some nodes would fetch what it lacks of these; None where nothing is known."""
        rates = [held.fetch_rate for held in self.of_nodes.values() if held.fetch_rate]
        sizes = {
            content.name: content.bytes or max(self.holders(content.name).values(), default=0) for content in contents
        }
        if not rates or not any(sizes.values()):
            return None
        slowest = min(rates)
        nothing = HeldContents({}, slowest)

        def seconds(node: str) -> float:
            held = self.of_nodes.get(node, nothing)
            missing = sum(size for name, size in sizes.items() if name not in held.sizes)
            return missing / (held.fetch_rate or slowest)

        return [seconds(node) for node in nodes]

    def copy_from(self, other: ContentIndex) -> None:
        """Know the same; what a node has reported never changes in place."""
        self.of_nodes = dict(other.of_nodes)
        self.version = other.version
        self._holders = {name: dict(holders) for name, holders in other._holders.items()}

    def snapshot(self) -> list[list[Any]]:
        """As plain data."""
        return [[node, held.sizes, held.fetch_rate] for node, held in self.of_nodes.items()]

    def restore(self, plain: Sequence[Sequence[Any]]) -> None:
        """What ``snapshot`` wrote."""
        for node, sizes, fetch_rate in plain:
            self._put(node, HeldContents(dict(sizes), fetch_rate))

    def _put(self, node: str, held: HeldContents) -> None:
        self.forget(node)
        self.of_nodes[node] = held
        self.version += 1
        for name, size in held.sizes.items():
            self._holders.setdefault(name, {})[node] = size
