"""Two published ways to switch idle nodes off, rebuilt: both look every ten minutes, and what they wake is there at the
next look.

CES (Hu et al., SC'21, section 4.3, with the thresholds of its Philly run): when nodes are short, as many are woken as
it takes to have 20 to spare; when demand has fallen and is forecast to fall, all but 20 are switched off. Its
forecaster, LightGBM there, is scikit-learn's boosted trees here, fitted on October. As published, what it says of an
hour rests on values up to three hours before that hour, so it knows some hours that a server could not know.

A time-out, as that of Slurm: a node that was idle for so long is switched off, and some are always spare.
"""

from __future__ import annotations

from typing import Final

import numpy as np

BUFFER: Final = 20
"""Nodes that CES keeps."""
_PAST, _AHEAD, _REST = 2, 30, 10
"""Steps: of the trend until now, of the forecast trend, and without a change after nodes were short."""
_LEAST_FALL = 0.1


def ces(needs: np.ndarray, forecast: np.ndarray, total: int) -> tuple[np.ndarray, int]:
    """Nodes that are on at each step before any are woken, and how many are woken in all.

    Args:
        forecast: of the same steps.
    """
    on = np.empty(len(needs))
    powered, woken, at_rest_until = float(needs[0]) + BUFFER, 0.0, 0
    for step, need in enumerate(needs):
        on[step] = powered
        if powered < need:
            woken += min(total, need + BUFFER) - powered
            powered, at_rest_until = min(total, need + BUFFER), step + _REST
        coming = forecast[step : step + _AHEAD].mean()
        falls = needs[max(0, step - _PAST) : max(1, step)].mean() - need >= _LEAST_FALL and need >= coming
        rises_later = coming < forecast[step : step + 2 * _AHEAD].mean()
        if falls and step >= at_rest_until and not rises_later:
            powered = min(powered, need + BUFFER)
    return on, int(woken)


def time_out(needs: np.ndarray, first: int, idle_steps: int, spare: int, total: int) -> tuple[np.ndarray, int]:
    """The same from step ``first`` on, for a time-out."""
    on = np.array([needs[step - idle_steps : step].max() + spare for step in range(first, len(needs))])
    on = np.minimum(on, total)
    return on, int(np.maximum(0.0, np.diff(on)).sum())


def ces_forecast(needs: np.ndarray, fitted: int) -> np.ndarray:
    """The forecaster of CES: trees on the hour, the day, and what was a day and three hours ago; from what lies behind.

    Args:
        needs: steps of ten minutes from midnight on; NaN in gaps.
        fitted: so many of the first steps are learnt from.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor

    a_day, steps = 144, np.arange(len(needs))
    columns = [steps % a_day // 6, steps % 6, steps // a_day % 7, steps // a_day, _before(needs, 18)]
    columns.append(0.5 * _before(needs, 18) + 0.25 * (_before(needs, 19) + _before(needs, 17)))
    for width in (3, 6):
        shifted = _before(needs, 6)
        windows = np.lib.stride_tricks.sliding_window_view(np.concatenate([np.full(width - 1, np.nan), shifted]), width)
        columns += [windows.mean(axis=1), np.median(windows, axis=1), windows.std(axis=1)]
    features = np.column_stack(columns)
    known = np.flatnonzero(~np.isnan(needs[:fitted]))
    trees = HistGradientBoostingRegressor(max_iter=200, random_state=0).fit(features[known], needs[known])
    return trees.predict(features)


def _before(values: np.ndarray, steps: int) -> np.ndarray:
    return np.concatenate([np.full(steps, np.nan), values[:-steps]])
