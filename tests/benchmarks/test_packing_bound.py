"""The cutting-stock bound on cases that can be reckoned by hand."""

from __future__ import annotations

import pytest

from benchmarks.traces.packing_bound import most_allocated_milli


@pytest.mark.parametrize(
    ("asked", "cards", "most"),
    [
        ({500: 3}, 5, 1500),  # room for all that is asked for
        ({600: 10}, 5, 3000),  # one to a card
        ({600: 3, 400: 10}, 5, 3 * 1000 + 2 * 800),  # three full cards, two with a pair of 400
        ({810: 10, 1000: 2}, 5, 2 * 1000 + 3 * 810),  # whole cards first
        ({810: 10, 470: 7}, 6, 3.5 * 940 + 2.5 * 810),  # halves are allowed: it is a bound
        ({333: 30}, 10, 10 * 999),  # sizes without a common step
    ],
)
def test_the_bound_is_what_the_best_mixture_of_patterns_holds(asked, cards, most):
    assert most_allocated_milli(asked, cards) == pytest.approx(most)
