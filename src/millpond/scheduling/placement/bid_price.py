"""Bid price: what the free part of one card is worth to the slices that are yet to come.

The fractional requests form a one-dimensional cutting-stock problem: cover the slice sizes, in their
frequencies, with as few cards as possible. The duals of its linear relaxation price each size; the value of a
residual is the best filling of it at those prices. Putting a slice into a residual destroys the difference.

Sources: Gilmore and Gomory, "A linear programming approach to the cutting-stock problem", Operations Research
9(6), 1961 (column generation over knapsacks); bid prices as in Talluri and van Ryzin, "The Theory and Practice
of Revenue Management", 2004, chapter 3.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from millpond.scheduling.placement.arrays import WHOLE_CARD_MILLI, FloatArray, Int64Array

VALUE_OF_CARD = 10_000
_STEP_MILLI = 10
_TOLERANCE = 1e-9
_PIVOT_LIMIT = 5_000


def slice_values(frequencies: Mapping[int, int]) -> Int64Array:
    """Value of every residual of one card.

    ``frequencies``: count by slice size in milli, 1..999. Returns int64 of shape (1001,), not decreasing, in
    units where a whole card is worth at most ``VALUE_OF_CARD``. Without slices the value is linear.
    """
    wanted = {size: count for size, count in frequencies.items() if 0 < size < WHOLE_CARD_MILLI and count > 0}
    if not wanted:
        return np.arange(WHOLE_CARD_MILLI + 1, dtype=np.int64) * (VALUE_OF_CARD // WHOLE_CARD_MILLI)
    step = _STEP_MILLI if all(size % _STEP_MILLI == 0 for size in wanted) else 1
    sizes = np.array(sorted(wanted), dtype=np.int64) // step
    counts = np.array([wanted[size] for size in sorted(wanted)], dtype=np.float64)
    capacity = WHOLE_CARD_MILLI // step
    prices = _cutting_stock_prices(sizes, counts / counts.sum(), capacity)
    worth, _ = best_fill(sizes, prices, capacity)
    by_step = np.rint(worth * VALUE_OF_CARD).astype(np.int64)
    return by_step[np.arange(WHOLE_CARD_MILLI + 1) // step]


def _cutting_stock_prices(sizes: Int64Array, demand: FloatArray, capacity: int) -> FloatArray:
    """Duals of min sum(x) subject to patterns covering ``demand``; shape (sizes,), in cards per slice.

    Revised simplex with an explicit inverse. Every operation is elementwise or a sum along the outer axis, so
    that no BLAS decides about the last bit.
    """
    inverse = np.diag(1.0 / (capacity // sizes))
    cost = np.ones(len(sizes))
    level = demand / (capacity // sizes)
    for _ in range(_PIVOT_LIMIT):
        prices = (cost[:, None] * inverse).sum(axis=0)
        column, gain, column_cost = _entering(sizes, prices, capacity)
        if gain <= _TOLERANCE:
            break
        direction = (inverse.T * column[:, None]).sum(axis=0)
        positive = direction > _TOLERANCE
        ratios = np.full(len(sizes), np.inf)
        ratios[positive] = level[positive] / direction[positive]
        leaving = int(np.argmin(ratios))
        pivot_row = inverse[leaving] / direction[leaving]
        step = ratios[leaving]
        inverse = inverse - direction[:, None] * pivot_row[None, :]
        inverse[leaving] = pivot_row
        level = level - direction * step
        level[leaving] = step
        cost[leaving] = column_cost
    positive_prices: FloatArray = np.maximum(prices, 0.0)
    return positive_prices


def _entering(sizes: Int64Array, prices: FloatArray, capacity: int) -> tuple[FloatArray, float, float]:
    """The column that lowers the cost most, its gain and its cost: a surplus column or the best pattern."""
    cheapest = int(np.argmin(prices))
    if prices[cheapest] < -_TOLERANCE:
        surplus = np.zeros(len(sizes))
        surplus[cheapest] = -1.0
        return surplus, float(-prices[cheapest]), 0.0
    worth, pattern = best_fill(sizes, prices, capacity)
    return pattern, float(worth[capacity] - 1.0), 1.0


def best_fill(sizes: Int64Array, prices: FloatArray, capacity: int) -> tuple[FloatArray, FloatArray]:
    """Unbounded knapsack: how much one card of sizes, ascending, is worth at most at these prices.

    Returns:
        The best value of every capacity, shape (capacity + 1,), and how many of each size the best of the last takes.
    """
    worth = np.zeros(capacity + 1)
    chosen = np.full(capacity + 1, -1)
    for room in range(1, capacity + 1):
        fitting = int(np.searchsorted(sizes, room, side="right"))
        worth[room] = worth[room - 1]
        if fitting == 0:
            continue
        values = prices[:fitting] + worth[room - sizes[:fitting]]
        best = int(np.argmax(values))
        if values[best] > worth[room] + _TOLERANCE:
            worth[room], chosen[room] = values[best], best
    pattern = np.zeros(len(sizes))
    room = capacity
    while room > 0:
        if chosen[room] < 0:
            room -= 1
        else:
            pattern[chosen[room]] += 1.0
            room -= int(sizes[chosen[room]])
    return worth, pattern
