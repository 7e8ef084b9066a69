"""What a load will be some steps from now: as it is, as it was a day or a week before, or learnt by ridge regressions.

All answer in one form: an array with an entry for each step of the series and for those ahead, in which entry ``t`` is
what was said at ``t - steps``, by nothing later than that. Fits are renewed each day of the series, so an entry does
not depend on how long the series goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

import numpy as np

from millpond.forecasting.series import WEEK_S, LoadSeries
from millpond.model.units import DAY_S, HOUR_S

PENALTY, STEADY_PENALTY = 30.0, 3_000.0
"""For features of unit variance; the second so much that a fit on two weeks leans on the present value."""
FEWEST_FITTED: Final = 48
_MEANS_S: Final = (3 * HOUR_S, 6 * HOUR_S, DAY_S, WEEK_S)

Model = Callable[[np.ndarray], np.ndarray]
Fit = Callable[[np.ndarray, np.ndarray], Model]


class LoadForecaster(Protocol):
    """A way to forecast."""

    @property
    def name(self) -> str:
        """As people read it."""

    def forecasts(self, load: LoadSeries, steps: int, begin: int) -> np.ndarray:
        """What is said of each step, ``steps`` steps before it: as many as the series has and ``steps`` more.

        Args:
            begin: entries before this step are not needed, and may be NaN. NaN is what cannot be said.
        """


class Repeated:
    """A value of before: the latest, or that of the same time of a day or a week before.

    Args:
        period_s: 0: the latest.
    """

    def __init__(self, name: str, period_s: float) -> None:
        self.name = name
        self._period_s = period_s

    def forecasts(self, load: LoadSeries, steps: int, begin: int) -> np.ndarray:
        """See ``LoadForecaster``."""
        period = load.steps_in(self._period_s) if self._period_s else steps
        return _delayed(load.values, -(-steps // period) * period, len(load.values) + steps)


class Learnt:
    """The change from the present value, by what lies behind and by the hour.

    Learnt of square roots: that of a count varies about as much where it is high as where it is low (Bartlett, 1936).

    Args:
        fit: makes a model of features (one row each) and the changes that followed.
    """

    def __init__(self, name: str, fit: Fit) -> None:
        self.name = name
        self._fit = fit

    def forecasts(self, load: LoadSeries, steps: int, begin: int) -> np.ndarray:
        """See ``LoadForecaster``."""
        values, count, per_day = np.sqrt(load.values), len(load.values), load.steps_in(DAY_S)
        features = features_of(replace(load, values=values), steps)
        changes = np.full(count, np.nan)
        changes[: max(0, count - steps)] = values[steps:] - values[: max(0, count - steps)]
        said = np.full(count + steps, np.nan)
        for first in range(max(0, begin - steps) // per_day * per_day, count, per_day):
            known = np.flatnonzero(~np.isnan(changes[: max(0, first - steps + 1)]))
            known = known[known >= per_day]
            if len(known) < FEWEST_FITTED:
                continue
            model = self._fit(features[known], changes[known])
            origins = np.arange(first, min(first + per_day, count))
            said[origins + steps] = np.maximum(0.0, values[origins] + model(features[origins])) ** 2
        return said


def features_of(load: LoadSeries, steps: int) -> np.ndarray:
    """One row for each step: what is known then that may tell the load ``steps`` steps later; NaN where it is not.

    The present and the last values, means of hours, days and a week, what the load was at the later hour on days
    before, and that hour, one column for each.
    """
    values, count, per_day = load.values, len(load.values), load.steps_in(DAY_S)
    columns = [_delayed(values, lag, count) for lag in (0, 1, 2, 3, max(4, load.steps_in(23 * HOUR_S)))]
    columns += [_mean_behind(values, load.steps_in(span)) for span in _MEANS_S]
    same_hour = [_delayed(values, days * per_day - steps, count) for days in range(1, 8) if days * per_day >= steps]
    columns += [each for days, each in enumerate(same_hour, 8 - len(same_hour)) if days in (1, 2, 7)]
    if same_hour:
        columns.append(_mean_of_known(np.array(same_hour)))
    hour = (np.arange(count) + steps) % per_day * 24 // per_day
    return np.column_stack([*columns, np.eye(24)[hour]])


def ridge(penalty: float, features: np.ndarray, changes: np.ndarray) -> Model:
    """A ridge regression on features of unit variance (Hoerl and Kennard, 1970); what is unknown counts as the mean."""
    known = np.where(np.isnan(features).all(axis=0), 0.0, features)
    centre, scale = np.nanmean(known, axis=0), np.nanstd(known, axis=0) + 1e-9

    def scaled(rows: np.ndarray) -> np.ndarray:
        found: np.ndarray = np.nan_to_num((rows - centre) / scale)
        return found

    rows, level = scaled(known), changes.mean()
    weights = np.linalg.solve(rows.T @ rows + penalty * np.eye(rows.shape[1]), rows.T @ (changes - level))
    # By the row, so that what is said does not depend on how many rows are asked for together.
    return lambda asked: level + (scaled(asked) * weights).sum(axis=1)


def _delayed(values: np.ndarray, lag: int, count: int) -> np.ndarray:
    found = np.full(count, np.nan)
    length = min(len(values), count - lag)
    if length > 0:
        found[lag : lag + length] = values[:length]
    return found


def _mean_behind(values: np.ndarray, width: int) -> np.ndarray:
    """Means of the known of the last ``width`` steps; NaN before so many are over."""
    if len(values) < width:
        return np.full(len(values), np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(values, width)
    return np.concatenate([np.full(width - 1, np.nan), _mean_of_known(windows.T)])


def _mean_of_known(rows: np.ndarray) -> np.ndarray:
    """Down the columns; NaN where nothing is known."""
    known = ~np.isnan(rows)
    count = known.sum(axis=0)
    sums = np.where(known, rows, 0.0).sum(axis=0)
    return np.where(count > 0, sums / np.maximum(count, 1), np.nan)


NAIVE: Final = Repeated("as now", 0.0)
DAY: Final = Repeated("as a day before", DAY_S)
WEEK: Final = Repeated("as a week before", WEEK_S)
RIDGE: Final = Learnt("ridge", partial(ridge, PENALTY))
STEADY_RIDGE: Final = Learnt("steady ridge", partial(ridge, STEADY_PENALTY))
FORECASTERS: Final[tuple[LoadForecaster, ...]] = (NAIVE, DAY, WEEK, RIDGE, STEADY_RIDGE)
"""Those that are held against each other."""
