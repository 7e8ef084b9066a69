"""What no placement could exceed: the cutting-stock bound on how much of the cards a set of requests can fill.

Requests may be left out at will and the future is known; nodes, CPU, memory and card models are ignored, and a request
for several cards counts as that many single ones. So the true optimum lies below. The linear programme

    most sum(size * used)   with   used <= asked,   patterns of sizes that fill one card,   at most ``cards`` patterns

is solved by column generation (Gilmore and Gomory, "A linear programming approach to the cutting-stock problem",
Operations Research 9(6), 1961).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.optimize import linprog

from millpond.scheduling.placement.bid_price import best_fill

CARD_MILLI = 1000
_TOLERANCE = 1e-7


def most_allocated_milli(asked: Mapping[int, int], cards: int) -> float:
    """Upper bound on the compute that ``cards`` cards can give.

    Args:
        asked: how many single-card requests there are, by size in milli, 1 to 1000.
    """
    sizes = np.array(sorted(asked), dtype=np.int64)
    step = int(np.gcd.reduce([CARD_MILLI, *sizes]))
    room, widths = CARD_MILLI // step, sizes // step
    count = len(sizes)
    patterns = np.diag((room // widths).astype(float))
    while True:
        # Columns: how many of each size are used, then how many cards have each pattern.
        filled = np.hstack([np.eye(count), -patterns])
        rows = np.vstack([filled, np.repeat([0.0, 1.0], [count, patterns.shape[1]])])
        worth = np.append(-sizes.astype(float), np.zeros(patterns.shape[1]))
        most = [*((0.0, float(asked[size])) for size in sizes.tolist()), *[(0.0, None)] * patterns.shape[1]]
        found = linprog(worth, rows, np.append(np.zeros(count), cards), bounds=most, method="highs")
        *prices, price_of_card = -found.ineqlin.marginals
        values, pattern = best_fill(widths, np.array(prices), room)
        if values[room] <= price_of_card + _TOLERANCE * CARD_MILLI:
            return float(-found.fun)
        patterns = np.column_stack([patterns, pattern])
