"""The heaviest matching of two groups: each member of the one with at most one of the other.

The Hungarian method with potentials, as successive shortest paths (Kuhn, "The Hungarian method for the assignment
problem", 1955; Jonker and Volgenant, 1987). It takes rows² x columns steps at most.
"""

from __future__ import annotations

from collections.abc import Sequence

Weights = Sequence[Sequence[float]]
"""By row and column, 0 and above; 0 is a pair that may not be."""


def heaviest_matching(weights: Weights) -> list[tuple[int, int]]:
    """The (row, column) pairs of a matching whose weights add up to the most, by row; none of them weighs 0.

    A member may stay alone. Equal input gives equal output.
    """
    rows = [row for row, weighs in enumerate(weights) if any(weighs)]
    columns = [column for column, weighs in enumerate(zip(*weights, strict=True)) if any(weighs)]
    if not rows:
        return []
    # As many columns of weight 0 as rows: whoever has no better stays alone there.
    costs = [[-weights[row][column] for column in columns] + [0.0] * len(rows) for row in rows]
    row_of = _assign(costs)
    found = sorted((rows[row], column) for column, row in zip(columns, row_of, strict=False) if row >= 0)
    return [(row, column) for row, column in found if weights[row][column] > 0.0]


def _assign(costs: Sequence[Sequence[float]]) -> list[int]:
    """(columns,) the row of each column at the least cost in all, -1 for none; no fewer columns than rows."""
    columns = len(costs[0])
    row_potential, potential = [0.0] * len(costs), [0.0] * columns
    row_of = [-1] * columns
    for start in range(len(costs)):
        row, column = start, -1
        shortest, before = [float("inf")] * columns, [-1] * columns
        is_done = [False] * columns
        while True:
            if column >= 0:
                is_done[column] = True
                row = row_of[column]
            step, following = float("inf"), -1
            for other in range(columns):
                if is_done[other]:
                    continue
                length = costs[row][other] - row_potential[row] - potential[other]
                if length < shortest[other]:
                    shortest[other], before[other] = length, column
                if shortest[other] < step:
                    step, following = shortest[other], other
            row_potential[start] += step
            for other in range(columns):
                if is_done[other]:
                    row_potential[row_of[other]] += step
                    potential[other] -= step
                else:
                    shortest[other] -= step
            column = following
            if row_of[column] < 0:
                break
        while column >= 0:
            previous = before[column]
            row_of[column] = start if previous < 0 else row_of[previous]
            column = previous
    return row_of
