"""Nodes by how long they would fetch what a job needs: the nearest first, as masks, so that no cached score is touched.

A whole gang starts once its slowest node has everything: so it goes where its place with the shortest longest fetch is.
Fetches that differ by little beside the work count as equal, and the score decides among them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from millpond.scheduling.placement.arrays import FloatArray, NodeMask

LEAST_DIFFERENCE_S: Final = 2.0
PART_OF_RUN: Final = 0.01
PART_OF_FETCH: Final = 0.25
"""Fetches that differ by no more than the sum of these count as equal: seconds, of the expected run, of the fetch."""
MOST_STEPS: Final = 8
"""So many masks are tried before all nodes are."""


def same_fetch_up_to(fetch_s: float, run_s: float) -> float:
    """The longest fetch that counts as one of ``fetch_s`` before a run of an expected length; 0 where not known."""
    return fetch_s * (1.0 + PART_OF_FETCH) + LEAST_DIFFERENCE_S + PART_OF_RUN * run_s


class FetchTimes:
    """(nodes,) seconds for which each node would fetch what a job lacks, with the masks that were made of them.

    Jobs that need the same come one after another, while what nodes hold seldom changes.

    Attributes:
        seconds: to be left as they are.
    """

    def __init__(self, seconds: FloatArray) -> None:
        self.seconds = seconds
        self.soonest = float(seconds.min())
        self._steps: list[tuple[float, float, NodeMask]] = []

    def up_to(self, bound: float) -> tuple[NodeMask, float]:
        """The mask of the nodes that fetch no longer, to be left as it is, and the next longer fetch; else infinite."""
        for longest, beyond, mask in self._steps:
            if longest <= bound < beyond:
                return mask, beyond
        within = self.seconds <= bound
        longest = float(self.seconds[within].max(initial=-np.inf))
        beyond = float(self.seconds[~within].min(initial=np.inf))
        mask = within.astype(np.uint8)
        if len(self._steps) == MOST_STEPS:
            del self._steps[0]
        self._steps.append((longest, beyond, mask))
        return mask, beyond


def nearest_first(times: FetchTimes, run_s: float, mask: NodeMask | None) -> Iterator[NodeMask]:
    """Masks (nodes,) within ``mask`` that open ever farther nodes, to be left as they are; none opens all of it."""
    left = None if mask is None else times.seconds[mask[: len(times.seconds)] != 0]
    soonest = times.soonest if left is None else float(left.min(initial=np.inf))
    for _ in range(MOST_STEPS if soonest < np.inf else 0):
        bound = same_fetch_up_to(soonest, run_s)
        step, beyond = times.up_to(bound)
        if left is not None:
            left = left[left > bound]
            beyond = float(left.min(initial=np.inf))
        if beyond == np.inf:
            return
        yield step if mask is None else mask[: len(step)] & step
        soonest = beyond
