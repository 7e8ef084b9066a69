"""What Gittins ranks are for says survival; here they are made of the chances of ending."""

from __future__ import annotations

from typing import Final

NOBODY_LEFT: Final = 1e-4
"""Of the jobs that have reached a bin: once fewer are left, it is not asked how they go on."""


def gittins_ranks(chances: list[float], edges: list[float]) -> list[float]:
    """(bins,) seconds: the index of a job that has reached the bin.

    Going on beyond a bin is worth while only if the index of the next one is below what there would be so far: so the
    last bin comes first, and hardly any of them is looked at more than a few times.

    Args:
        chances: (bins,) of ending in the bin, above 0, for a job that has reached it.
        edges: (bins + 1,) seconds.
    """
    ranks = [0.0] * len(chances)
    for reached in range(len(chances) - 1, -1, -1):
        left, chance, spent, best = 1.0, 0.0, 0.0, float("inf")
        for at in range(reached, len(chances)):
            if left < NOBODY_LEFT or ranks[at] >= best:
                break
            ending = chances[at]
            chance += left * ending
            spent += left * (edges[at + 1] - edges[at]) * (1.0 - 0.5 * ending)
            left *= 1.0 - ending
            best = min(best, spent / chance)
        ranks[reached] = best
    return ranks


def ends(chances: list[float], edges: list[float], left_at_most: float) -> list[float]:
    """(bins,) seconds of service after which so few of the jobs that have reached the bin are left."""
    found = []
    for reached in range(len(chances)):
        left, at = 1.0, reached
        while at < len(chances) and left > left_at_most:
            left *= 1.0 - chances[at]
            at += 1
        found.append(edges[at])
    return found
