"""Room in a model of a pool for gangs whose tasks must lie together, apart or evenly (``placement.spacing``)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
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
        free = np.zeros(self._node_count, dtype=np.int64)
        free[self._nodes] = np.maximum(np.array(rooms.free, dtype=np.int64), 0)
        for _ in islice(self._spacing.starts(free), MOST_STARTS):
            taken: Taken = []
            if self._take_all(rooms, avoided, taken):
                return taken
            rooms.give(taken)
        return None

    def _take_all(self, rooms: Rooms, avoided: Collection[int], taken: Taken) -> bool:
        for (count, amount, will_do), role in zip(self._parts, self._roles, strict=True):
            for _ in range(count):
                node = rooms.tightest(amount, self._left_of(will_do, role), avoided)
                if node < 0:
                    return False
                rooms.change(node, -amount)
                taken.append((node, amount))
                self._spacing.take(role, int(self._nodes[node]))
        return True

    def _left_of(self, will_do: bytes, role: int) -> bytes:
        """(nodes,) 1 for those that will do for the next task of a role."""
        mask = self._spacing.within(role, None)
        return will_do if mask is None else (np.frombuffer(will_do, dtype=np.uint8) & mask[self._nodes]).tobytes()

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
