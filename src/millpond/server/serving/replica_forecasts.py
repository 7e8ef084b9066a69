"""How many replicas a service will need once one that starts now is ready, by its own load of before.

What is kept is how many replicas the load asked for, the most of each ten minutes. A forecast is asked for the step in
which a new replica can serve, with a bound that seven in ten steps stay within; with a higher one too many would be
idle (docs/forecasts.md). It is served where it was no worse than what the present load asks for.
"""

from __future__ import annotations

import math
from typing import Final

from millpond.forecasting.forecasters import DAY, NAIVE, RIDGE, WEEK
from millpond.forecasting.outlook import LoadForecast, forecast_load
from millpond.forecasting.series import NoForecast
from millpond.server.monitoring.time_series.load_history import REPLICA_DEMAND, LoadHistory
from millpond.server.store.time_series import TimeSeriesStore
from millpond.server.wording import lasting

PART: Final = 0.7
"""Of the steps in which the bound is to be enough."""
_REST_S: Final = 2.0
"""Between forecasts, each of which takes a third of a second; of many services, the others wait for the next look."""


class ReplicaForecasts:
    """Keeps what services needed, and forecasts it each ten minutes; used by one thread."""

    def __init__(self, store: TimeSeriesStore) -> None:
        self._history = LoadHistory(store, REPLICA_DEMAND)
        self._forecast_at = 0.0
        self._found: dict[str, tuple[int, float, LoadForecast | NoForecast]] = {}

    def ahead(self, now: float, service: str, wanted: int, ahead_s: float) -> tuple[int, str] | None:
        """How many replicas to have on their way now, and why, in a clause; None: nothing is forecast.

        Args:
            wanted: how many the load asks for now.
            ahead_s: how long a replica takes until it is ready.
        """
        self._history.note(now, {service: wanted})
        step = int(now) // REPLICA_DEMAND.step_s
        known = self._found.get(service)
        if (known is None or known[:2] != (step, ahead_s)) and not 0.0 <= now - self._forecast_at < _REST_S:
            self._forecast_at = now
            load = self._history.series(service, now)
            found = forecast_load(load, ahead_s + 2 * load.step_s, PART, (NAIVE, DAY, WEEK, RIDGE))
            known = self._found[service] = step, ahead_s, found
        if known is None or isinstance(forecast := known[2], NoForecast):
            return None
        return math.ceil(forecast.upper - 1e-9), (
            f"so many are forecast to be needed in {lasting(ahead_s)} ({forecast.by}; met {forecast.coverage:.0%} "
            f"in {forecast.tested_days} days, skill {forecast.skill:.2f})"
        )

    def save(self, now: float) -> None:
        """Keep the history over a restart."""
        self._history.save(now)

    def forget(self, service: str) -> None:
        """A service is gone."""
        self._found.pop(service, None)
