"""What nodes hold of images, data sets and models, as they report it, and how long they fetch what they lack.

By name of the node, so that it outlives a change of its devices. A node that reports nothing counts as one that holds
nothing and fetches at the slowest known rate; while no node has reported a rate, nothing is known of any.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from millpond.model.contents import MOST_CONTENTS, Content
from millpond.model.events import NodeContents
from millpond.scheduling.ledger.hardware import Hardware
from millpond.scheduling.placement.arrays import FloatArray
from millpond.scheduling.placement.nearest_contents import FetchTimes

_MOST_REMEMBERED: Final = 1_000


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

    def __init__(self, hardware: Hardware) -> None:
        self._hardware = hardware
        self.of_nodes: dict[str, HeldContents] = {}
        self.version = 0
        self._holders: dict[str, dict[str, int]] = {}
        """By name of a content: how large it is on which nodes."""
        self._stamp = (-1, -1)
        self._rates: FloatArray | None = None
        self._rates_of_hardware = -1
        """The version of the hardware that the rates are of; -1: a rate has changed since."""
        self._fetch_times: dict[tuple[Content, ...], FetchTimes | None] = {}
        """What was found while the stamp was this one."""

    def note(self, event: NodeContents) -> None:
        """A node that is there has reported what it holds."""
        sizes = {content.name: content.bytes for content in event.contents[:MOST_CONTENTS]}
        self._put(event.node, HeldContents(sizes, max(event.fetch_rate, 0)))

    def forget(self, node: str) -> None:
        """A node is gone."""
        if self._drop(node) is not None:
            self.version += 1
            self._rates_of_hardware = -1

    def holders(self, name: str) -> Mapping[str, int]:
        """The nodes that hold a content, with its size there."""
        return self._holders.get(name, {})

    def size_of(self, content: Content) -> int:
        """Bytes of a content; 0 where neither it nor a node that holds it says."""
        return content.bytes or max(self.holders(content.name).values(), default=0)

    def fetch_s(self, contents: tuple[Content, ...]) -> FloatArray | None:
        """(nodes,) seconds for which each would fetch what it lacks of these; None: none would, or not known.

        To be left as it is.
        """
        times = self.fetch_times(contents)
        return None if times is None else times.seconds

    def fetch_times(self, contents: tuple[Content, ...]) -> FetchTimes | None:
        """The same, with what is known of it."""
        stamp = (self.version, self._hardware.version)
        if stamp != self._stamp or len(self._fetch_times) >= _MOST_REMEMBERED:
            self._stamp = stamp
            self._fetch_times.clear()
        if contents not in self._fetch_times:
            self._fetch_times[contents] = self._find_fetch_times(contents)
        return self._fetch_times[contents]

    def _find_fetch_times(self, contents: tuple[Content, ...]) -> FetchTimes | None:
        sizes = {each.name: self.size_of(each) for each in contents}
        rates = self._rates_of_nodes()
        if rates is None or not any(sizes.values()):
            return None
        missing = np.full(len(rates), float(sum(sizes.values())))
        for name, size in sizes.items():
            missing[self._indices(self.holders(name))] -= size
        seconds: FloatArray = missing / rates
        return FetchTimes(seconds) if seconds.any() else None

    def _rates_of_nodes(self) -> FloatArray | None:
        """(nodes,) bytes per second, the slowest for those that reported none; None where nobody did."""
        if self._rates_of_hardware != self._hardware.version:
            self._rates, self._rates_of_hardware = None, self._hardware.version
            known = {node: held.fetch_rate for node, held in self.of_nodes.items() if held.fetch_rate}
            if not known:
                return None
            self._rates = np.full(len(self._hardware.nodes), float(min(known.values())))
            self._rates[self._indices(known)] = list(known.values())
        return self._rates

    def _indices(self, nodes: Iterable[str]) -> list[int]:
        return [self._hardware.node_index[node] for node in nodes]

    def copy_from(self, other: ContentIndex) -> None:
        """Know the same; what a node has reported never changes in place."""
        self._stamp, self._rates_of_hardware = (-1, -1), -1  # versions of two histories may be equal by chance
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
        before = self._drop(node)
        if before is None or before.fetch_rate != held.fetch_rate:
            self._rates_of_hardware = -1
        self.of_nodes[node] = held
        self.version += 1
        for name, size in held.sizes.items():
            self._holders.setdefault(name, {})[node] = size

    def _drop(self, node: str) -> HeldContents | None:
        before = self.of_nodes.pop(node, None)
        for name in () if before is None else before.sizes:
            holders = self._holders[name]
            del holders[node]
            if not holders:
                del self._holders[name]
        return before
