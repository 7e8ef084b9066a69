"""Nodes by how long they would fetch what a job needs: the nearest first, as masks, so that no cached score is touched.

A whole gang starts once its slowest node has everything: so it goes where its place with the shortest longest fetch is.
Fetches that differ by little beside the work count as equal, and the score decides among them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from millpond.scheduling.placement.arrays import NodeMask

LEAST_DIFFERENCE_S: Final = 2.0
PART_OF_RUN: Final = 0.01
PART_OF_FETCH: Final = 0.25
"""Fetches that differ by no more than the sum of these count as equal: seconds, of the expected run, of the fetch."""
MOST_STEPS: Final = 8
"""So many masks are tried before all nodes are."""


def same_fetch_up_to(fetch_s: float, run_s: float) -> float:
    """The longest fetch that counts as one of ``fetch_s`` before a run of an expected length; 0 where not known."""
    return fetch_s * (1.0 + PART_OF_FETCH) + LEAST_DIFFERENCE_S + PART_OF_RUN * run_s


def nearest_first(fetch_s: NDArray[np.float64], run_s: float, mask: NodeMask | None) -> Iterator[NodeMask]:
    """Masks (nodes,) within ``mask`` that open ever farther nodes; none that opens all of it."""
    count = len(fetch_s)
    allowed = np.ones(count, dtype=np.uint8) if mask is None else mask[:count]
    left = fetch_s[allowed != 0]
    for _ in range(MOST_STEPS):
        if not len(left):
            return
        bound = same_fetch_up_to(float(left.min()), run_s)
        left = left[left > bound]
        if len(left):
            yield allowed * (fetch_s <= bound)
