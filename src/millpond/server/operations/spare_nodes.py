"""How many empty nodes of a pool stay on: the number of its rule, or more by a forecast that has shown its worth.

The planner gets the number as part of its rule, and each step that follows is an event, so a replay needs no forecast.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from millpond.forecasting.rises import SpareForecast, forecast_spare
from millpond.forecasting.series import NoForecast
from millpond.model.hardware.node_power import PowerSavingRule
from millpond.server.monitoring.time_series.load_history import NODE_DEMAND, LoadHistory
from millpond.server.store.statistics.time_series import TimeSeriesStore
from millpond.specs.api.pool.nodes import SpareInfo

_FORECAST_EVERY_S: Final = 3_600.0


class SpareNodes:
    """Keeps the demand for nodes, and forecasts its rises each hour; used by one thread, but for ``latest``.

    Attributes:
        latest: what holds now, by pool; replaced as a whole.
    """

    def __init__(self, store: TimeSeriesStore) -> None:
        self.latest: tuple[SpareInfo, ...] = ()
        self._history = LoadHistory(store, NODE_DEMAND)
        self._found: dict[str, tuple[float, PowerSavingRule, SpareForecast | NoForecast]] = {}

    def rules(
        self, now: float, rules: Mapping[str, PowerSavingRule], demands: Mapping[str, int]
    ) -> dict[str, PowerSavingRule]:
        """The rules, with the spare that holds now.

        Args:
            demands: nodes in demand now, by pool.
        """
        self._history.note(now, {pool: demands[pool] for pool, rule in rules.items() if rule.cover is not None})
        infos = [self._spare(now, pool, rule) for pool, rule in rules.items()]
        self.latest = tuple(infos)
        return {info.pool: replace(rules[info.pool], spare=info.spare) for info in infos}

    def save(self, now: float) -> None:
        """Keep the history over a restart."""
        self._history.save(now)

    def _spare(self, now: float, pool: str, rule: PowerSavingRule) -> SpareInfo:
        if rule.cover is None:
            return SpareInfo(pool=pool, spare=rule.spare)
        known = self._found.get(pool)
        if known is None or not 0.0 <= now - known[0] < _FORECAST_EVERY_S or known[1] != rule:
            found = forecast_spare(self._history.series(pool, now), rule.boot_s, rule.cover, rule.spare)
            known = self._found[pool] = now, rule, found
        match known[2]:
            case NoForecast(reason):
                return SpareInfo(
                    pool=pool, spare=rule.spare, cover=rule.cover, within_s=rule.boot_s, no_forecast=reason
                )
            case SpareForecast(nodes, coverage, skill, tested_days):
                return SpareInfo(
                    pool=pool,
                    spare=nodes,
                    cover=rule.cover,
                    within_s=rule.boot_s,
                    coverage=coverage,
                    skill=skill,
                    tested_days=tested_days,
                )
