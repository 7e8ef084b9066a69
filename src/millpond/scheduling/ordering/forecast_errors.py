"""What forecasts of lengths are worth: learnt from the jobs that came to their end, for estimates alone.

The errors ln(length / expected length) are summed up by classes of the expected length. A line is fitted through the
means of the classes by least squares, as errors make extremes: long forecasts are mostly too long and short ones too
short. Where a class has jobs enough its own mean and spread take the place of the line, as jobs that come in numbers
are often of one length. With few jobs, forecasts are taken at their word.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

CAUTION = NormalDist().inv_cdf(0.9)
"""A cautious length lies so many standard deviations above the expected one."""

CLASSES, WIDTH = 64, 0.35
"""Classes of ln(expected length), and how wide they are."""

FORGET = 1.0 / 128.0
"""Weight that every job takes from the memory of earlier ones of its class."""

PRIOR_WEIGHT = 16.0
"""How many jobs the word of the forecasts counts for."""

CLASS_WEIGHT = 8.0
"""How many jobs of a class the line counts for."""

LEAST_SIGMA = 0.01

Fit = tuple[float, float, float, float, list[list[float]]]
"""Jobs; slope and value at 0 of the line; variance around it; the sums."""


class ForecastErrors:
    """Sums over the jobs that had a forecast which did not claim to be certain."""

    def __init__(self) -> None:
        self._sums = [[0.0, 0.0, 0.0] for _ in range(CLASSES)]
        """By class: of 1, y, y², with y = ln actual - ln expected."""
        self._known_fit: Fit | None = None

    def learn(self, expected_s: float, actual_s: float) -> None:
        """A job that was expected to run for so long has done so for so long."""
        x = math.log(max(expected_s, 1.0))
        y = math.log(max(actual_s, 1.0)) - x
        number = min(int(x / WIDTH), CLASSES - 1)
        kept = 1.0 - FORGET
        self._sums[number] = [
            kept * sum_ + term for sum_, term in zip(self._sums[number], (1.0, y, y * y), strict=True)
        ]
        self._known_fit = None

    def corrected(self, expected_s: float, cautious_s: float) -> tuple[float, float]:
        """Median of the length, in seconds, and standard deviation of its logarithm, for a forecast."""
        expected_s = max(expected_s, 1.0)
        told = max(math.log(max(cautious_s, expected_s) / expected_s) / CAUTION, LEAST_SIGMA)
        count, slope, shift, variance, classes = self._fitted()
        if not count:
            return expected_s, told
        x = math.log(expected_s)
        prior = (count * variance + PRIOR_WEIGHT * told * told) / (count + PRIOR_WEIGHT)
        place = min(max(x / WIDTH - 0.5, 0.0), CLASSES - 1.0)
        low = min(int(place), CLASSES - 2)
        part = place - low
        weight = (1.0 - part) * classes[low][0] + part * classes[low + 1][0]
        own = (1.0 - part) * classes[low][1] + part * classes[low + 1][1]
        own_square = (1.0 - part) * classes[low][2] + part * classes[low + 1][2]
        line = shift + slope * x
        total = weight + CLASS_WEIGHT
        mean = (own + CLASS_WEIGHT * line) / total
        square = (own_square + CLASS_WEIGHT * (line * line + prior)) / total
        return expected_s * math.exp(mean), max(math.sqrt(max(square - mean * mean, 0.0)), LEAST_SIGMA)

    def _fitted(self) -> Fit:
        if self._known_fit is None:
            self._known_fit = self._fit()
        return self._known_fit

    def _fit(self) -> Fit:
        count = x = y = xx = xy = yy = 0.0
        for number, (jobs, errors, squares) in enumerate(self._sums):
            at = WIDTH * (number + 0.5)
            count += jobs
            x += jobs * at
            xx += jobs * at * at
            xy += at * errors
            y += errors
            yy += squares
        if not count:
            return 0.0, 0.0, 0.0, 0.0, self._sums
        mean_x, mean_y = x / count, y / count
        spread, together = max(xx / count - mean_x * mean_x, 0.0), xy / count - mean_x * mean_y
        slope = together * count / (count * spread + PRIOR_WEIGHT)
        shift = mean_y * count / (count + PRIOR_WEIGHT)
        variance = max(yy / count - mean_y * mean_y - slope * (2.0 * together - slope * spread), 0.0)
        return count, slope, shift - slope * mean_x, variance, self._sums

    def snapshot(self) -> list[list[float]]:
        """Plain data."""
        return [list(sums) for sums in self._sums]

    def restore(self, plain: Sequence[Sequence[float]]) -> None:
        """Take over what ``snapshot`` returned."""
        self._sums = [list(sums) for sums in plain]
        self._known_fit = None
