"""How good forecasts of durations were, in the three ways that scheduling cares about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from millpond.forecasting.durations import Forecast


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Quality of forecasts.

    Attributes:
        count: jobs that had a forecast.
        mean_log2_error: mean absolute error in doublings: 1 is wrong by a factor of two.
        rank_correlation: Spearman's; what an ordering needs. NaN where one side is constant.
        coverage: part of the jobs that stayed within the cautious length; what a reservation needs.
    """

    count: int
    mean_log2_error: float
    rank_correlation: float
    coverage: float


def accuracy(forecasts: Sequence[Forecast], actual_s: Sequence[float]) -> Accuracy | None:
    """Compare forecasts with what happened; None where there are none."""
    if not forecasts:
        return None
    expected = np.array([forecast.expected_s for forecast in forecasts])
    cautious = np.array([forecast.cautious_s for forecast in forecasts])
    actual = np.maximum(np.asarray(actual_s, dtype=float), 1.0)
    error = float(np.abs(np.log2(np.maximum(expected, 1.0)) - np.log2(actual)).mean())
    within = float((actual <= cautious * (1 + 1e-9)).mean())
    return Accuracy(len(forecasts), error, _correlation(_ranks(expected), _ranks(actual)), within)


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 0; equal values share the mean of theirs."""
    _, group, sizes = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(sizes)
    return (last - (sizes + 1) / 2)[group]


def _correlation(left: np.ndarray, right: np.ndarray) -> float:
    left, right = left - left.mean(), right - right.mean()
    scale = float(np.sqrt((left**2).sum() * (right**2).sum()))
    return float((left * right).sum()) / scale if scale else float("nan")
