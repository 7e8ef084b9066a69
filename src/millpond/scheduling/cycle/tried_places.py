"""Places that are tried on the ledger, and left again where they would be in the way of others."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np

from millpond.scheduling.cycle.job_placement import Placed
from millpond.scheduling.ledger.cluster import Cluster
from millpond.scheduling.placement.arrays import NodeMask


@dataclass(slots=True)
class Tries:
    """How many places may yet be tried in vain: a bound on work."""

    left: int


def try_places(
    cluster: Cluster,
    place: Callable[[NodeMask | None], Placed | None],
    mask: NodeMask | None,
    in_the_way: Callable[[Placed], Collection[int]],
    tries: Tries,
) -> Placed | None:
    """Take holdings that are in nobody's way, in the open transaction; None, and nothing taken, if none are found.

    Args:
        place: takes holdings on the nodes of a mask, if there is room.
        mask: (nodes,), 0 keeps a node out.
        in_the_way: on which nodes a place that was taken is in the way of others; it is not tried there again.
    """
    journal = cluster.journal
    while tries.left > 0:
        mark = journal.begin()
        placed = place(mask)
        nodes = () if placed is None else in_the_way(placed)
        if not nodes:
            journal.commit()
            return placed
        journal.rollback(mark)
        tries.left -= 1
        mask = np.ones(cluster.arrays.node_count, dtype=np.uint8) if mask is None else mask.copy()
        mask[list(nodes)] = 0
    return None


def nodes_of(placed: Placed) -> list[int]:
    """The nodes of a place, by index."""
    return list(dict.fromkeys(holding.node for _, holding in placed))
