"""What no placement could exceed: the cutting-stock bound on how much of the cards a set of requests can fill.

Requests may be left out at will and the future is known; nodes, CPU, memory and card models are ignored, and a request
for several cards counts as that many single ones. So the true optimum lies below. The linear programme

    most sum(size * used)   with   used <= asked,   patterns of sizes that fill one card,   at most ``cards`` patterns

is solved by column generation (Gilmore and Gomory, "A linear programming approach to the cutting-stock problem",
Operations Research 9(6), 1961). What is returned is the value of its dual prices, which is a bound at whatever prices
the search ended.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from millpond.scheduling.placement.bid_price import best_fill

CARD_MILLI = 1000
_TOLERANCE = 1e-7
_PIVOTS = 2_000

Floats = NDArray[np.float64]


def most_allocated_milli(asked: Mapping[int, int], cards: int) -> float:
    """Upper bound on the compute that ``cards`` cards can give.

    Args:
        asked: how many single-card requests there are, by size in milli, 1 to 1000.
    """
    sizes = np.array(sorted(asked), dtype=np.int64)
    demand = np.array([asked[size] for size in sizes], dtype=np.float64)
    step = int(np.gcd.reduce([CARD_MILLI, *sizes]))
    room, widths = CARD_MILLI // step, sizes // step
    # Rows: one for each size (used + left out = asked), one for the cards. At first everything is left out.
    count = len(sizes)
    basis = np.eye(count + 1)
    cost = np.append(sizes.astype(np.float64), 0.0)
    level = np.append(demand, float(cards))
    bound = float(cards * CARD_MILLI)
    for _ in range(_PIVOTS):
        duals = np.linalg.solve(basis.T, cost)
        prices = np.clip(duals[:count], 0.0, sizes)
        values, pattern = best_fill(widths, prices, room)
        worth = float(values[room])
        bound = min(bound, cards * worth + float(demand @ (sizes - prices)))
        column, column_cost = _entering(duals, sizes, pattern, worth)
        if column is None:
            break
        direction = np.linalg.solve(basis, column)
        ratios = np.where(direction > _TOLERANCE, level / np.where(direction > _TOLERANCE, direction, 1.0), np.inf)
        leaving = int(np.argmin(ratios))
        level = level - direction * ratios[leaving]
        level[leaving] = ratios[leaving]
        basis[:, leaving], cost[leaving] = column, column_cost
        level = np.maximum(level, 0.0)
    return bound


def _entering(duals: Floats, sizes: NDArray[np.int64], pattern: Floats, worth: float) -> tuple[Floats | None, float]:
    """A column that lowers what is left out, with its cost; None when there is none."""
    count = len(sizes)
    unit = np.eye(count + 1)
    lowest, dearest = int(np.argmin(duals[:count])), int(np.argmax(duals[:count] - sizes))
    if duals[lowest] < -_TOLERANCE:  # more may be used than is asked for
        return -unit[lowest], 0.0
    if duals[dearest] - sizes[dearest] > _TOLERANCE:  # leave more of it out
        return unit[dearest], float(sizes[dearest])
    if duals[count] > _TOLERANCE:  # leave a card empty
        return unit[count], 0.0
    if worth + duals[count] > _TOLERANCE * CARD_MILLI:
        return np.append(pattern, 1.0), 0.0
    return None, 0.0
