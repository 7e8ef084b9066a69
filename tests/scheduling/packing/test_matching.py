"""The heaviest matching, compared with trying all of them."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from millpond.scheduling.packing.matching import heaviest_matching

WEIGHTS = st.integers(1, 5).flatmap(
    lambda columns: st.lists(
        st.lists(st.sampled_from((0.0, 1.1, 1.2, 1.5, 1.9, 2.0)), min_size=columns, max_size=columns), max_size=5
    )
)


def heaviest_by_hand(weights: list[list[float]]) -> float:
    """Each row with another column, or with one of as many that weigh nothing."""
    if not weights:
        return 0.0
    wide = [row + [0.0] * len(weights) for row in weights]
    orders = permutations(range(len(wide[0])), len(wide))
    return max(sum(row[column] for row, column in zip(wide, order, strict=True)) for order in orders)


@given(WEIGHTS.filter(lambda weights: len(weights) * (len(weights[0]) if weights else 0) <= 12))
def test_no_matching_is_heavier(weights: list[list[float]]) -> None:
    found = heaviest_matching(weights)
    assert len({row for row, _ in found}) == len({column for _, column in found}) == len(found)
    assert all(weights[row][column] > 0.0 for row, column in found)
    assert abs(sum(weights[row][column] for row, column in found) - heaviest_by_hand(weights)) < 1e-9


def test_two_good_pairs_are_better_than_the_best_one() -> None:
    assert heaviest_matching([[1.9, 1.5], [1.5, 0.0]]) == [(0, 1), (1, 0)]


def test_nobody_to_match_with() -> None:
    assert heaviest_matching([]) == heaviest_matching([[]]) == heaviest_matching([[0.0, 0.0]]) == []
