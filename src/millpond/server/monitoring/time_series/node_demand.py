"""How many nodes of each pool were in demand, minute by minute: what forecasts of rises are made of.

Charts need minutes for two days alone, forecasts for weeks; so this is a row for each day, of all pools, written every
ten minutes. A server that is killed leaves a gap of that length at the most.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from millpond.forecasting.series import LoadSeries
from millpond.server.store.time_series import SeriesRow, TimeSeriesStore

MINUTE_S: Final = 60
DAY_S: Final = 86_400
KEPT_DAYS: Final = 15
_SUBJECT: Final = "node-demand"
_SAVE_EVERY_S: Final = 600.0
_MINUTES: Final = DAY_S // MINUTE_S


class NodeDemandHistory:
    """The history of one server, read from the store once; used by one thread."""

    def __init__(self, store: TimeSeriesStore) -> None:
        self._store = store
        self._days: dict[int, dict[str, np.ndarray]] | None = None
        self._changed: set[int] = set()
        self._saved_at = 0.0

    def note(self, now: float, demands: Mapping[str, int]) -> None:
        """Nodes in demand now, by pool; the most of a minute is kept."""
        if not demands:
            return
        day, second = divmod(int(now), DAY_S)
        pools = self._read(now).setdefault(day, {})
        for pool, demand in demands.items():
            minutes = pools.setdefault(pool, np.full(_MINUTES, np.nan))
            minutes[second // MINUTE_S] = np.fmax(minutes[second // MINUTE_S], demand)
            self._changed.add(day)
        if now - self._saved_at >= _SAVE_EVERY_S:
            self.save(now)

    def series(self, pool: str, now: float) -> LoadSeries:
        """The minutes that are over, as far back as they are kept."""
        days = self._read(now)
        first, today = int(now) // DAY_S - KEPT_DAYS + 1, int(now) // DAY_S
        unknown = np.full(_MINUTES, np.nan)
        values = np.concatenate([days.get(day, {}).get(pool, unknown) for day in range(first, today + 1)])
        over = (int(now) - first * DAY_S) // MINUTE_S
        return LoadSeries(float(first * DAY_S), float(MINUTE_S), values[:over])

    def save(self, now: float) -> None:
        """Write what is new, and drop what is too old."""
        if not self._changed:
            return
        self._saved_at = now
        days = self._read(now)
        begin = (int(now) // DAY_S - KEPT_DAYS + 1) * DAY_S
        for day in [day for day in days if day * DAY_S < begin]:
            del days[day]
        self._store.write([_row(day, days[day]) for day in sorted(self._changed & days.keys())])
        self._store.forget({DAY_S: (begin, now)})
        self._changed.clear()

    def _read(self, now: float) -> dict[int, dict[str, np.ndarray]]:
        if self._days is None:
            rows = self._store.between(_SUBJECT, DAY_S, now - KEPT_DAYS * DAY_S, now)
            self._days = {
                row.at // DAY_S: {pool: np.array(values, dtype=float) for pool, values in row.look.items()}
                for row in rows
            }
        return self._days


def _row(day: int, pools: Mapping[str, np.ndarray]) -> SeriesRow:
    look = {
        pool: tuple(None if np.isnan(value) else float(value) for value in minutes) for pool, minutes in pools.items()
    }
    known = max((int((~np.isnan(minutes)).sum()) for minutes in pools.values()), default=0)
    return SeriesRow(_SUBJECT, DAY_S, day * DAY_S, known, look)
