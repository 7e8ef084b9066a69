"""What the simulated world tells of its prices or carbon intensities: each hour, what is published by then.

The world knows the true series; the policy hears what the server's forecast makes of the part that is published.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from millpond.forecasting.rate_hours import predict_rate
from millpond.model.energy import EnergyRates, RateMeasure, RateSeries
from millpond.model.errors import InvalidInputError
from millpond.model.events import Event
from millpond.model.units import HOUR_S


@dataclass(frozen=True, slots=True)
class PublishedRates:
    """How jobs that may start later hear of the hours to come.

    Attributes:
        measure: by which of the world's rates they go.
        ahead_s: so far ahead it is published: 0 for what is measured as it comes, a day for prices of an exchange.
    """

    measure: RateMeasure
    ahead_s: float = 0.0


class SimulatedRates:
    """Tells what is predicted, at the beginning of the play and of each hour.

    Args:
        rates: of the world; the one that is published has to be a series.
        handle: takes what is told.
        begin: when the clock begins, in seconds.
    """

    def __init__(
        self, published: PublishedRates, rates: EnergyRates, handle: Callable[[Event], None], begin: float
    ) -> None:
        series = rates.price if published.measure is RateMeasure.PRICE else rates.carbon
        if not isinstance(series, RateSeries):
            raise InvalidInputError(f"the world has no series of {published.measure.value}", "give it one")
        self._series = series
        self._published = published
        self._handle = handle
        self.next_at = begin

    def tell(self, now: float) -> None:
        """Tell what is due."""
        if now < self.next_at:
            return
        self.next_at = (now // HOUR_S + 1.0) * HOUR_S
        known = self._series.before(now + self._published.ahead_s)
        self._handle(predict_rate(known, self._published.measure, now))
