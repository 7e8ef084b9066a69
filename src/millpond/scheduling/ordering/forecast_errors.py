"""What forecasts of lengths are worth: learnt from the jobs that came to their end, for estimates alone.

A line is fitted through ln(length / expected length) over ln(expected length), by least squares with forgetting; errors
make extremes, so long forecasts are mostly too long and short ones too short. What is left is the error of a forecast.
With few jobs, forecasts are taken at their word.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

CAUTION = NormalDist().inv_cdf(0.9)
"""A cautious length lies so many standard deviations above the expected one."""

FORGET = 1.0 / 512.0
"""Weight that every job takes from the memory of earlier ones."""

PRIOR_WEIGHT = 16.0
"""How many jobs the word of the forecasts counts for."""

LEAST_SIGMA = 0.01


class ForecastErrors:
    """Sums over the jobs that had a forecast which did not claim to be certain."""

    def __init__(self) -> None:
        self.sums = [0.0] * 6
        """Of 1, x, y, x², xy and y², with x = ln expected, y = ln actual - ln expected."""

    def learn(self, expected_s: float, actual_s: float) -> None:
        """A job that was expected to run for so long has done so for so long."""
        x = math.log(max(expected_s, 1.0))
        y = math.log(max(actual_s, 1.0)) - x
        terms = (1.0, x, y, x * x, x * y, y * y)
        self.sums = [kept * (1.0 - FORGET) + term for kept, term in zip(self.sums, terms, strict=True)]

    def corrected(self, expected_s: float, cautious_s: float) -> tuple[float, float]:
        """Median of the length, in seconds, and standard deviation of its logarithm, for a forecast."""
        expected_s = max(expected_s, 1.0)
        told = max(math.log(max(cautious_s, expected_s) / expected_s) / CAUTION, LEAST_SIGMA)
        count, x, y, xx, xy, yy = self.sums
        if not count:
            return expected_s, told
        mean_x, mean_y = x / count, y / count
        spread = max(xx / count - mean_x * mean_x, 0.0)
        together = xy / count - mean_x * mean_y
        slope = together * count / (count * spread + PRIOR_WEIGHT)
        shift = mean_y * count / (count + PRIOR_WEIGHT)
        rest = max(yy / count - mean_y * mean_y - slope * (2.0 * together - slope * spread), 0.0)
        variance = (count * rest + PRIOR_WEIGHT * told * told) / (count + PRIOR_WEIGHT)
        median_s = expected_s * math.exp(shift + slope * (math.log(expected_s) - mean_x))
        return median_s, max(math.sqrt(variance), LEAST_SIGMA)

    def snapshot(self) -> list[float]:
        """Plain data."""
        return self.sums

    def restore(self, plain: Sequence[float]) -> None:
        """Take over what ``snapshot`` returned."""
        self.sums = list(plain)
