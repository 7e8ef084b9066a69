"""The forecast of a load that has done best so far, with a bound that a given part stays below.

Each day of the series, the forecasters and the median of them are held against what came in the days before; the best
one speaks for that day. The bound adds the quantile of its own errors in those days (split conformal prediction: Lei et
al., 2018). What is served was tested like this to the end of the series, and is no worse than the naive forecast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from millpond.forecasting.forecasters import NAIVE, LoadForecaster
from millpond.forecasting.scores import coverage, known_in, skill
from millpond.forecasting.series import WEEK_S, LoadSeries, NoForecast
from millpond.model.units import DAY_S

COMPARED_DAYS: Final = 14
"""Before a day, over which forecasters are held against what came."""
_FEWEST_COMPARED_DAYS: Final = 3
TESTED_DAYS: Final = 7
LEAST_DAYS: Final = 8
FARTHEST_S: Final = WEEK_S
MEDIAN: Final = "the median of all"


@dataclass(frozen=True, slots=True)
class LoadForecast:
    """What a load will be.

    Attributes:
        likely, upper: the value, and what it stays within by the part that was asked for.
        by: the forecaster that speaks.
        skill: what part of the naive forecast's absolute error was saved in the tested days.
        coverage: the part of the steps in them that stayed within the bound.
    """

    likely: float
    upper: float
    by: str
    skill: float
    coverage: float
    tested_days: int


@dataclass(frozen=True, slots=True)
class Outlook:
    """What would have been said and bounded of each step, and of those ahead; by whom, by day from ``begin`` on."""

    said: np.ndarray
    upper: np.ndarray
    by: Sequence[str]


def forecast_load(
    load: LoadSeries, ahead_s: float, part: float, forecasters: Sequence[LoadForecaster]
) -> LoadForecast | NoForecast:
    """The load ``ahead_s`` after the last step of the series.

    Args:
        part: that is to stay within the upper bound.
        forecasters: to be held against each other; the naive one is always among them.
    """
    if ahead_s > FARTHEST_S:
        return NoForecast(f"{ahead_s / DAY_S:.1f} days ahead is too far: a week is the farthest")
    per_day, steps, count = load.steps_in(DAY_S), load.steps_in(ahead_s), len(load.values)
    known_days = float((~np.isnan(load.values)).sum()) / per_day
    if known_days < LEAST_DAYS:
        return NoForecast(f"the history is too short: {known_days:.1f} of {LEAST_DAYS} days")
    begin = max(0, count - TESTED_DAYS * per_day)
    found = roll(load, steps, part, (forecasters, begin))
    tested = slice(begin, count)
    said, came = found.said[tested], load.values[tested]
    naive = NAIVE.forecasts(load, steps, begin)[tested]
    known = known_in(said, found.upper[tested], came, naive)
    if np.isnan(found.said[-1]) or np.isnan(found.upper[-1]) or known.sum() < per_day:
        return NoForecast("the latest values are a gap, or too few are known")
    saved = skill(float(np.abs(came - said)[known].sum()), float(np.abs(came - naive)[known].sum()))
    if saved < 0.0:
        return NoForecast(f"it would be worse than the present value (skill {saved:.2f})")
    covered = coverage(found.upper[tested], came)
    return LoadForecast(float(found.said[-1]), float(found.upper[-1]), found.by[-1], saved, covered, TESTED_DAYS)


def roll(load: LoadSeries, steps: int, part: float, by: tuple[Sequence[LoadForecaster], int]) -> Outlook:
    """What would have been said of each step from a step on, ``steps`` steps before it.

    Args:
        by: the forecasters, and the step. Days are those of the series, from its begin on.
    """
    forecasters, begin = by
    per_day, count = load.steps_in(DAY_S), len(load.values)
    first_needed = max(0, begin - steps - COMPARED_DAYS * per_day)
    others = [each for each in forecasters if each is not NAIVE]
    said = {each.name: each.forecasts(load, steps, first_needed) for each in (NAIVE, *others)}
    if len(said) > 2:
        said[MEDIAN] = _median(list(said.values()))
    chosen, upper, names = np.full(count + steps, np.nan), np.full(count + steps, np.nan), list[str]()
    for first in range(max(0, begin - steps) // per_day * per_day, count, per_day):
        behind = slice(max(0, first + 1 - COMPARED_DAYS * per_day), first + 1)
        errors = {name: load.values[behind] - each[behind] for name, each in said.items()}
        name = _best(errors, _FEWEST_COMPARED_DAYS * per_day)
        targets = slice(first + steps, min(first + per_day, count) + steps)
        chosen[targets] = said[name][targets]
        known = errors[name][~np.isnan(errors[name])]
        if len(known) >= per_day:
            upper[targets] = np.maximum(0.0, chosen[targets] + np.quantile(known, part, method="higher"))
        names.append(name)
    return Outlook(chosen, upper, names)


def _best(errors: dict[str, np.ndarray], least: int) -> str:
    """Who was nearest; the naive one, unless so many errors of another are known."""
    losses = {
        name: float(np.nanmean(np.abs(each))) for name, each in errors.items() if (~np.isnan(each)).sum() >= least
    }
    return min(losses, key=lambda name: losses[name], default=NAIVE.name)


def _median(said: list[np.ndarray]) -> np.ndarray:
    """Of what is known at each step."""
    rows = np.array(said)
    found = np.full(rows.shape[1], np.nan)
    known = ~np.isnan(rows).all(axis=0)
    found[known] = np.nanmedian(rows[:, known], axis=0)
    return found
