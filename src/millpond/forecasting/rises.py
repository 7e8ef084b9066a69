"""How many more nodes will be needed before one that is switched on now is there: a quantile of the rises of late.

Gangs are in it by themselves, as what is counted is nodes in demand: a job of eight nodes makes it rise by eight. Each
step asks how far demand rose within the boot time that followed; the forecast is a quantile of the answers of the last
week. It is back-tested day by day, and served only where it beats the fixed number of spare nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from millpond.forecasting.scores import coverage, pinball, skill
from millpond.forecasting.series import LoadSeries, NoForecast
from millpond.model.units import DAY_S

LEARNT_DAYS: Final = 7
"""Rises of so many days are learnt from: more follow a change of the pool's use too slowly (docs/forecasts.md)."""
TESTED_DAYS: Final = 7
LEAST_DAYS: Final = 3
"""Of known rises, below which nothing is forecast; all but the first two are tested."""
_FITTED_DAYS: Final = 2


@dataclass(frozen=True, slots=True)
class SpareForecast:
    """So many nodes more than are in demand will do.

    Attributes:
        nodes: at least the fixed number.
        coverage: part of the tested steps whose rise stayed within what would have been said.
        skill: what part of the fixed number's pinball loss is saved.
        tested_days: how many days the test went over.
    """

    nodes: int
    coverage: float
    skill: float
    tested_days: int


def forecast_spare(demand: LoadSeries, within_s: float, part: float, fixed: int) -> SpareForecast | NoForecast:
    """The number of spare nodes from the end of the series on.

    Args:
        demand: nodes in demand.
        within_s: how long a node takes until it is there.
        part: of the rises that are to stay within the spare nodes, as 0.98.
        fixed: the number that holds without a forecast, and below which none goes.
    """
    per_day = demand.steps_in(DAY_S)
    if demand.steps_in(within_s) >= per_day:
        return NoForecast("a node takes a day or more to boot, and rises within a day are the longest that are learnt")
    rises = rises_within(demand, within_s)
    known_days = float((~np.isnan(rises)).sum()) / per_day
    if known_days < LEAST_DAYS:
        return NoForecast(f"the history is too short: {known_days:.1f} of {LEAST_DAYS} days")
    days = min(TESTED_DAYS, int(known_days) - _FITTED_DAYS)
    said, came = _tested(rises, per_day, demand.steps_in(within_s), part, days)
    said = np.maximum(said, fixed)
    if not (~np.isnan(said) & ~np.isnan(came)).any():
        return NoForecast("the history of the last days has too many gaps to test a forecast")
    saved = skill(pinball(said, came, part), pinball(np.full(len(came), float(fixed)), came, part))
    if saved <= 0.0:
        return NoForecast(f"it would be no better than {fixed} (skill {saved:.2f} in {days} days)")
    latest = _quantile(rises[-LEARNT_DAYS * per_day :], part)
    return SpareForecast(max(fixed, int(np.ceil(latest))), coverage(said, came), saved, days)


def rises_within(demand: LoadSeries, within_s: float) -> np.ndarray:
    """By step, how far demand rose above it in the span that followed; NaN where that is not known, or not yet."""
    steps = demand.steps_in(within_s)
    rises = np.full(len(demand.values), np.nan)
    if len(demand.values) > steps:
        spans = np.lib.stride_tricks.sliding_window_view(demand.values, steps + 1)
        rises[: len(spans)] = spans.max(axis=1) - spans[:, 0]
    return rises


def _tested(rises: np.ndarray, per_day: int, steps: int, part: float, days: int) -> tuple[np.ndarray, np.ndarray]:
    """What would have been said in each of the last days, each from what was known as it began, and what came."""
    begins = range(len(rises) - days * per_day, len(rises), per_day)
    said = [_quantile(rises[max(0, begin - steps - LEARNT_DAYS * per_day) : begin - steps], part) for begin in begins]
    return np.repeat(said, per_day), rises[begins.start :]


def _quantile(rises: np.ndarray, part: float) -> float:
    known = rises[~np.isnan(rises)]
    return float(np.quantile(known, part, method="higher")) if len(known) else float("nan")
