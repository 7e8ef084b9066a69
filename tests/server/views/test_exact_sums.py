"""Rounded amounts add up to the rounded sum."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from millpond.server.views.reports.usage import rounded_together

AMOUNTS = st.lists(st.floats(0, 1e7, allow_nan=False), max_size=50)


@given(AMOUNTS, st.integers(0, 3))
def test_the_rounded_amounts_add_up_and_none_is_off_by_a_whole_unit(amounts: list[float], digits: int) -> None:
    rounded, total = rounded_together(amounts, digits)
    unit = 10.0**-digits
    assert sum((Decimal(str(each)) for each in rounded), Decimal(0)) == Decimal(str(total))
    assert abs(total - sum(amounts)) <= unit / 2 + 1e-5
    assert all(abs(one - exact) < unit + 1e-5 for one, exact in zip(rounded, amounts, strict=True))


@given(AMOUNTS)
def test_the_sum_is_the_same_in_whatever_order_and_parts(amounts: list[float]) -> None:
    shuffled = sorted(amounts)
    assert rounded_together(shuffled, 3)[1] == rounded_together(amounts, 3)[1]
    assert rounded_together(amounts, 3)[1] == rounded_together([sum(amounts[:7]), *amounts[7:]], 3)[1]


def test_halves_are_rounded_up_and_the_largest_loss_goes_first() -> None:
    assert rounded_together([0.0025, 0.0025], 3) == ([0.003, 0.002], 0.005)
    assert rounded_together([1 / 3, 1 / 3, 1 / 3], 2) == ([0.34, 0.33, 0.33], 1.0)
    assert rounded_together([], 2) == ([], 0.0)
