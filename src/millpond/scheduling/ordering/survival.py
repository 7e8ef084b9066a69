"""How much longer will it run? Learnt online from the jobs that have ended, and from those that still run.

For each class of jobs (by number of cards) attained service is cut into bins of geometrically growing width; for every
bin it is counted how many runs outlived it and how many ended in it. The ratio is the hazard of ending there. From the
hazards follows, for a job that has attained so much already, the best ratio of expected service spent to chance of
ending, over all ways of going on a little longer: the Gittins rank, which minimises the mean time in system when
lengths are unknown (Gittins 1979; Aalto, Ayesta and Righter, QUESTA 2009). Classes with little history lean on all
classes together, and those on a heavy-tailed prior in which every bin has the same hazard.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cache
from typing import Any, Final

import numpy as np

from millpond.scheduling.placement.arrays import FloatArray
from millpond.scheduling.records import JobRecord

NOBODY_LEFT: Final = 1e-4
"""Of the jobs that have reached a bin: once fewer are left, it is not asked how they go on."""
CLASSES = 5
"""Job sizes: up to 1, 2, 4 and 8 cards, and more."""

FIRST_BIN_S = 30.0
BIN_RATIO = 2.0**0.5
LAST_EDGE_S = 3e8
PRIOR_HAZARD = 0.25
"""Chance of ending within one bin before anything is known: a Pareto tail of index about 0.8."""

PRIOR_WEIGHT = 8.0
POOLED_WEIGHT = 6.0
"""How many observations the prior, and the classes taken together, count for."""

REFRESH_GROWTH = 0.02
"""The ranks are computed anew when this much more has ended since the last time."""

RUNNING_PER_ENDING = 1000
"""... and one job more for so many that run, so that the cost per ended job stays bounded."""


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


@cache
def size_class(gpu_milli: int) -> int:
    """The class of a job by its cards."""
    for index, most in enumerate((1000, 2000, 4000, 8000)):
        if gpu_milli <= most:
            return index
    return CLASSES - 1


def _edges() -> list[float]:
    edges = [0.0, FIRST_BIN_S]
    while edges[-1] < LAST_EDGE_S:
        edges.append(edges[-1] * BIN_RATIO)
    return edges


EDGES = _edges()
BINS = len(EDGES) - 1


def hazards(ended: FloatArray, outlived: FloatArray) -> FloatArray:
    """(classes, bins) chance of ending in each bin for a job that has reached it, from (classes, bins) counts."""
    deaths, trials = ended.sum(axis=0), ended.sum(axis=0) + outlived.sum(axis=0)
    pooled = (deaths + PRIOR_WEIGHT * PRIOR_HAZARD) / (trials + PRIOR_WEIGHT)
    found: FloatArray = (ended + POOLED_WEIGHT * pooled) / (ended + outlived + POOLED_WEIGHT)
    return found


def _ranks_and_ends(chances: list[list[float]]) -> tuple[list[list[float]], list[list[list[float]]]]:
    """Of all classes, from (classes, bins) chances; when half, and all but a tenth, of who came so far have ended."""
    ranks = [gittins_ranks(each, EDGES) for each in chances]
    return ranks, [[ends(each, EDGES, left) for each in chances] for left in (0.5, 0.1)]


@cache
def _before_anything_ended() -> tuple[list[list[float]], list[list[list[float]]]]:
    """Ranks and ends by the prior alone, always the same."""
    nothing = np.zeros((CLASSES, BINS))
    return _ranks_and_ends(hazards(nothing, nothing).tolist())


class SurvivalTable:
    """Counts and ranks. Feed it the service of every run; ask it for ranks."""

    def __init__(self) -> None:
        self.ended = np.zeros((CLASSES, BINS))
        self.outlived = np.zeros((CLASSES, BINS))
        self.endings = 0
        self._refreshed_at = 0
        self.edges = np.array(EDGES)
        self._know(*_before_anything_ended())

    def _know(self, ranks: list[list[float]], ends_of: list[list[list[float]]]) -> None:
        self.ranks, self._ends = ranks, ends_of
        self.rank_table, self._end_table = np.array(ranks), np.array(ends_of)

    def outlive(self, record: JobRecord, service_s: float) -> None:
        """Count the bins that the job has outlived since it was last counted."""
        c, b = record.size_class, record.bins_outlived
        while b < BINS - 1 and EDGES[b + 1] <= service_s:
            self.outlived[c, b] += 1.0
            b += 1
        record.bins_outlived = b

    def end(self, record: JobRecord, service_s: float) -> None:
        """Count the end of a job after so much service."""
        self.outlive(record, service_s)
        self.ended[record.size_class, record.bins_outlived] += 1.0
        self.endings += 1

    def is_stale(self, running: int) -> bool:
        """Whether enough has ended since the ranks were last computed, given how much running work has to be read."""
        return self.endings >= self._refreshed_at * (1.0 + REFRESH_GROWTH) + 1.0 + running / RUNNING_PER_ENDING

    def refresh(self) -> None:
        """Compute the ranks from the counts."""
        self._know(*_ranks_and_ends(hazards(self.ended, self.outlived).tolist()))
        self._refreshed_at = self.endings

    def rank(self, size: int, service_s: float) -> float:
        """Seconds: how far the job is, in expectation, from the best moment to have stopped giving it service."""
        return self.ranks[size][bin_of(service_s)]

    def half_ended_s(self, size: int, service_s: float) -> float:
        """Seconds of service after which half of the jobs that have come so far have ended."""
        return max(self._ends[0][size][bin_of(service_s)], service_s)

    @property
    def half_ended_at(self) -> FloatArray:
        """(classes, bins) service after which half of the jobs that have reached the bin have ended."""
        table: FloatArray = self._end_table[0]
        return table

    @property
    def mostly_ended_at(self) -> FloatArray:
        """(classes, bins) service after which all but a tenth of the jobs that have reached the bin have ended."""
        table: FloatArray = self._end_table[1]
        return table

    def mostly_ended_s(self, size: int, service_s: float) -> float:
        """Seconds of service after which all but a tenth of the jobs that have come so far have ended."""
        return max(self._ends[1][size][bin_of(service_s)], service_s)

    def mostly_ended_of(self, sizes: FloatArray, services_s: FloatArray) -> FloatArray:
        """(jobs,) the same of many jobs, by their classes and their service."""
        bins = np.minimum(np.searchsorted(self.edges, services_s, side="right"), BINS) - 1
        ended: FloatArray = np.maximum(self._end_table[1, sizes.astype(np.int64), bins], services_s)
        return ended

    def next_rise(self, size: int, service_s: float, factor: float) -> float:
        """Service at which the rank will have risen by ``factor``; infinite when it never does."""
        ranks, b = self.ranks[size], bin_of(service_s)
        limit = ranks[b] * factor
        while b < BINS - 1 and ranks[b] <= limit:
            b += 1
        return EDGES[b] if b < BINS - 1 else float("inf")

    def snapshot(self) -> dict[str, Any]:
        """Plain data; ranks included, because they are as old as the last refresh."""
        return {
            "ended": self.ended.tolist(),
            "outlived": self.outlived.tolist(),
            "endings": self.endings,
            "refreshed_at": self._refreshed_at,
            "ranks": self.ranks,
            "ends": self._ends,
        }

    def restore(self, plain: dict[str, Any]) -> None:
        """Take over what ``snapshot`` returned."""
        self.ended, self.outlived = np.array(plain["ended"]), np.array(plain["outlived"])
        self.endings, self._refreshed_at = int(plain["endings"]), int(plain["refreshed_at"])
        self._know(plain["ranks"], plain["ends"])


def bin_of(service_s: float) -> int:
    """The bin that this much service lies in."""
    return bisect_right(EDGES, service_s, 0, BINS) - 1
