"""The default ordering with a correction of the key that was learnt from what a pool ran: see ``simulation.learning``.

The correction multiplies the weight of a job's size and depends on nothing but how many cards the job asks for, what is
told of its length, and the hour of the day at which it was submitted. So jobs change their places within a class, a
round and what is overdue, and nowhere else; with weights of zero the order is the default one.
"""

from __future__ import annotations

import math

from millpond.model.units import DAY_S, HOUR_S
from millpond.scheduling.ordering.base import cards_of
from millpond.scheduling.ordering.default import Default
from millpond.scheduling.ordering.forecasts import NEVER, forecast_s
from millpond.scheduling.records import JobRecord
from millpond.scheduling.settings import Settings

MOST = 3.0
"""The logarithm of the correction lies within plus or minus so much: a factor of 20."""


class Learned(Default):
    """Least predicted work left, aged, and corrected."""

    def __init__(self, settings: Settings, weights: tuple[float, ...]) -> None:
        super().__init__(settings)
        self._weights = weights

    def weight_of(self, record: JobRecord) -> float:
        exponent = 0.0
        for weight, figure in zip(self._weights, figures_of(record), strict=True):
            exponent += weight * figure
        return super().weight_of(record) * math.exp(max(-MOST, min(exponent, MOST)))


def figures_of(record: JobRecord) -> tuple[float, ...]:
    """What the correction depends on, in the order of ``model.policies.LEARNED_FIGURES``."""
    size, whole = math.log(cards_of(record.gpu_milli)), forecast_s(record)
    told = 1.0 if whole < NEVER else 0.0
    length = math.log(max(whole, 1.0) / HOUR_S) if whole < NEVER else 0.0
    day = 2.0 * math.pi * (record.submitted_at % DAY_S) / DAY_S
    return size, size * size, told, length, length * length, size * length, math.sin(day), math.cos(day)
