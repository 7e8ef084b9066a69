"""Forecast how many replicas a service needs by the time that a new one is ready, from its past load.

What is kept is how many replicas the load asked for, the most of each ten minutes. A forecast is asked for the step in
which a new replica can serve, with a bound that seven in ten steps stay within; with a higher one too many would be
idle (docs/forecasts.md). It is served where it was no worse than what the present load asks for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from millpond.forecasting.forecasters import FORECASTERS
from millpond.forecasting.outlook import LoadForecast, forecast_load
from millpond.forecasting.series import NoForecast
from millpond.server.monitoring.time_series.load_history import REPLICA_DEMAND, LoadHistory
from millpond.server.store.statistics.time_series import TimeSeriesStore
from millpond.server.wording import lasting

PART: Final = 0.7
"""Of the steps in which the bound is to be enough."""


_REST_S: Final = 2.0
"""Between forecasts, each of which takes a third of a second; of many services, the others wait for the next look."""


@dataclass(frozen=True, slots=True)
class ReplicaForecast:
    """How many replicas are to be on their way now.

    Attributes:
        ahead_s: how long a replica takes until it is ready.
        load: the forecast behind it.
    """

    replicas: int
    ahead_s: float
    load: LoadForecast

    @property
    def why(self) -> str:
        """In a clause."""
        load = self.load
        return (
            f"so many are forecast to be needed in {lasting(self.ahead_s)} ({load.by}; met {load.coverage:.0%} "
            f"in {load.tested_days} days, skill {load.skill:.2f})"
        )


NOT_YET: Final = NoForecast("it is being made")


class ReplicaForecasts:
    """Keeps what services needed, and forecasts it each ten minutes; used by one thread."""

    def __init__(self, store: TimeSeriesStore) -> None:
        self._history = LoadHistory(store, REPLICA_DEMAND)
        self._forecast_at = 0.0
        self._found: dict[str, tuple[int, float, LoadForecast | NoForecast]] = {}

    def ahead(self, now: float, service: str, wanted: int, ahead_s: float) -> ReplicaForecast | NoForecast:
        """How many replicas to have on their way now, or why nothing is forecast.

        Args:
            wanted: how many the load asks for now.
            ahead_s: how long a replica takes until it is ready.
        """
        self._history.note(now, {service: wanted})
        step = int(now) // REPLICA_DEMAND.step_s
        known = self._found.get(service)
        if (known is None or known[:2] != (step, ahead_s)) and not 0.0 <= now - self._forecast_at < _REST_S:
            self._forecast_at = now
            series = self._history.series(service, now)
            found = forecast_load(series, ahead_s + 2 * series.step_s, PART, FORECASTERS)
            known = self._found[service] = step, ahead_s, found
        if known is None:
            return NOT_YET
        if isinstance(load := known[2], NoForecast):
            return load
        return ReplicaForecast(math.ceil(load.upper - 1e-9), ahead_s, load)

    def save(self, now: float) -> None:
        """Keep the history over a restart."""
        self._history.save(now)

    def forget(self, service: str) -> None:
        """A service is gone."""
        self._found.pop(service, None)
