"""Whatever happens in whatever order, the books of a shared device tell the truth and nobody is left behind."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.sharing.sharing_walk import walk
from seeds import few_then_many


def test_two_hundred_walks_hold() -> None:
    for seed in range(200):
        walk(seed)


def test_walks_hold_where_nothing_ever_fails() -> None:
    counts = sum((walk(seed, {}) for seed in range(20)), Counter[str]())
    assert counts["swapped ok"]
    assert not counts["lost"]


@pytest.mark.parametrize("thousand", few_then_many((), range(3), range(3, 10)))
def test_ten_thousand_walks_hold(thousand: int) -> None:
    for seed in range(thousand * 1000, (thousand + 1) * 1000):
        walk(seed)
