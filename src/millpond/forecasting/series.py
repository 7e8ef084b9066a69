"""A regular series of a figure of the pool, with its gaps: what forecasts are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from millpond.model.units import DAY_S

WEEK_S: Final = 7 * DAY_S


@dataclass(frozen=True, slots=True)
class NoForecast:
    """Nothing is forecast, and why."""

    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class LoadSeries:
    """Values at equal steps.

    Attributes:
        begin: when the first step begins, in seconds since 1970, or on a clock of the series' own.
        step_s: the length of a step, in seconds.
        values: one for each step, as floats; NaN where nothing is known.
    """

    begin: float
    step_s: float
    values: np.ndarray

    def steps_in(self, span_s: float) -> int:
        """How many steps a span takes, at least one."""
        return max(1, round(span_s / self.step_s))
