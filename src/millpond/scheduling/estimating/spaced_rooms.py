"""Room in a model of a pool for gangs whose tasks must lie together, apart or evenly (``placement.spacing``)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import Final

import numpy as np

from millpond.scheduling.estimating.rooms import Part, Rooms, Taken
from millpond.scheduling.placement.spacing import Spacing

MOST_STARTS: Final = 64
"""Places in which tasks that must lie together are tried, as in ``placement.spaced_gangs``."""


class SpacedParts:
    """The tasks of alike jobs, and what they must keep between them.

    Args:
        roles: of each part, by index.
        nodes: those of the cluster that the model looks at, by index.
        node_count: of the cluster.
    """

    def __init__(
        self, parts: Sequence[Part], roles: Sequence[int], spacing: Spacing, nodes: Sequence[int], node_count: int
    ) -> None:
        self._parts = parts
        self._roles = roles
        self._spacing = spacing
        self._nodes = np.array(nodes, dtype=np.int64)
        self._node_count = node_count

    def take(self, rooms: Rooms, avoided: Collection[int]) -> Taken | None:
        """Take a place for all tasks, each on the tightest node that is left to it; None, and nothing taken, if not."""
        for _ in self.starts(rooms.free):
            taken: Taken = []
            if self._take_all(rooms, avoided, taken):
                return taken
            rooms.give(taken)
        return None

    def _take_all(self, rooms: Rooms, avoided: Collection[int], taken: Taken) -> bool:
        for number, (count, amount, _) in enumerate(self._parts):
            for _ in range(count):
                node = rooms.tightest(amount, self.open_to(number), avoided)
                if node < 0:
                    return False
                rooms.change(node, -amount)
                taken.append((node, amount))
                self.lay(number, node)
        return True

    def starts(self, free: Sequence[int]) -> Iterator[None]:
        """Each place in which the tasks may begin, as ``Spacing.starts``; the tries go on in the loop's body.

        Args:
            free: (nodes,) what is free of those that the model looks at.
        """
        of_all = np.zeros(self._node_count, dtype=np.int64)
        of_all[self._nodes] = np.maximum(np.array(free, dtype=np.int64), 0)
        return islice(self._spacing.starts(of_all), MOST_STARTS)

    def open_to(self, number: int) -> bytes:
        """(nodes,) 1 for those that will do for the next task of a part, by number."""
        will_do = self._parts[number][2]
        mask = self._spacing.within(self._roles[number], None)
        return will_do if mask is None else (np.frombuffer(will_do, dtype=np.uint8) & mask[self._nodes]).tobytes()

    def lay(self, number: int, node: int) -> None:
        """A task of a part lies on a node."""
        self._spacing.take(self._roles[number], int(self._nodes[node]))

    def nodes_of(self, rooms: Rooms, ends: Sequence[tuple[float, Taken]]) -> tuple[float, set[int]] | None:
        """The nodes that first have room for all tasks, and when; None if they never do.

        Args:
            ends: when what is given back, in order of time.
        """

        def place(count: int) -> Taken | None:
            then = rooms.copy()
            for _, taken in ends[:count]:
                then.give(taken)
            return self.take(then, ())

        if place(len(ends)) is None:
            return None
        count = bisect_left(range(len(ends)), True, key=lambda number: place(number) is not None)
        at = ends[count - 1][0] if count else 0.0
        return at, {node for node, _ in place(count) or ()}
