"""Ranks and expected ends are those that one finds by going on from each bin, step by step."""

from __future__ import annotations

import numpy as np
import pytest

from millpond.scheduling.ordering.survival import CLASSES, EDGES, NOBODY_LEFT, ends, gittins_ranks, hazards


def step_by_step(chances: list[float], reached: int) -> tuple[float, float, float]:
    """The best ratio of service to chance of ending, and when half, and all but a tenth, have ended."""
    left, chance, spent, ratios, lefts = 1.0, 0.0, 0.0, [], []
    for bin_, ending in enumerate(chances[reached:], reached):
        if left >= NOBODY_LEFT:
            chance += left * ending
            spent += left * (EDGES[bin_ + 1] - EDGES[bin_]) * (1.0 - 0.5 * ending)
            ratios.append(spent / chance)
        left *= 1.0 - ending
        lefts.append((left, EDGES[bin_ + 1]))
    half, most = (next((edge for left, edge in lefts if left <= part), EDGES[-1]) for part in (0.5, 0.1))
    return min(ratios), half, most


@pytest.mark.parametrize("seen", [0, 1, 10, 100_000])
def test_ranks_and_ends_are_those_of_going_on_step_by_step(seen: int) -> None:
    draws = np.random.default_rng(seen)
    ended, outlived = draws.integers(0, seen, (2, CLASSES, len(EDGES) - 1), endpoint=True).astype(float)
    outlived[1] *= 100.0  # of which hardly one ends
    for chances in hazards(ended, outlived).tolist():
        found = zip(gittins_ranks(chances, EDGES), *(ends(chances, EDGES, part) for part in (0.5, 0.1)), strict=True)
        assert list(found) == [step_by_step(chances, reached) for reached in range(len(chances))]
