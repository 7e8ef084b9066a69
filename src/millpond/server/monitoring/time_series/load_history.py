"""Loads of the past in equal steps, by name: what forecasts are made of.

Charts need minutes for two days alone, forecasts for weeks; so this is a row for each day, of all names of a subject,
written every ten minutes. A server that is killed leaves a gap of that length at the most. The last days that have
values are kept, so a clock that is set forward for a while takes none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from millpond.forecasting.series import LoadSeries
from millpond.server.store.statistics.time_series import SeriesRow, TimeSeriesStore

DAY_S: Final = 86_400
_SAVE_EVERY_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class LoadSubject:
    """What is kept.

    Attributes:
        name: of the rows in the store.
        step_s: length of a step; the most of each is kept.
        kept_days: today is one of them.
    """

    name: str
    step_s: int
    kept_days: int


NODE_DEMAND: Final = LoadSubject("node-demand", 60, 15)
"""Nodes in demand, by pool."""
REPLICA_DEMAND: Final = LoadSubject("replica-demand", 600, 22)
"""Replicas that its load asks for, by service."""


class LoadHistory:
    """The history of one server, read from the store once; used by one thread."""

    def __init__(self, store: TimeSeriesStore, subject: LoadSubject) -> None:
        self._store = store
        self._subject = subject
        self._steps = DAY_S // subject.step_s
        self._days: dict[int, dict[str, np.ndarray]] | None = None
        self._changed: set[int] = set()
        self._saved_at = 0.0

    def note(self, now: float, loads: Mapping[str, int]) -> None:
        """What there is now, by name."""
        if not loads:
            return
        day, second = divmod(int(now), DAY_S)
        names = self._read(now).setdefault(day, {})
        for name, load in loads.items():
            steps = names.setdefault(name, np.full(self._steps, np.nan))
            step = second // self._subject.step_s
            steps[step] = np.fmax(steps[step], load)
            self._changed.add(day)
        if not 0.0 <= now - self._saved_at < _SAVE_EVERY_S:
            self.save(now)

    def series(self, name: str, now: float) -> LoadSeries:
        """The steps that are over, as far back as they are kept."""
        days = self._read(now)
        today = int(now) // DAY_S
        first = today - self._subject.kept_days + 1
        unknown = np.full(self._steps, np.nan)
        values = np.concatenate([days.get(day, {}).get(name, unknown) for day in range(first, today + 1)])
        over = (int(now) - first * DAY_S) // self._subject.step_s
        return LoadSeries(float(first * DAY_S), float(self._subject.step_s), values[:over])

    def save(self, now: float) -> None:
        """Write what is new, and drop what is too old."""
        if not self._changed:
            return
        self._saved_at = now
        days = self._read(now)
        for day in sorted(days)[: -self._subject.kept_days]:
            del days[day]
        self._store.write([self._row(day, days[day]) for day in sorted(self._changed & days.keys())])
        self._store.forget_subject(self._subject.name, min(days) * DAY_S)
        self._changed.clear()

    def _read(self, now: float) -> dict[int, dict[str, np.ndarray]]:
        if self._days is None:
            rows = self._store.between(self._subject.name, DAY_S, 0.0, now)
            self._days = {
                row.at // DAY_S: {name: np.array(values, dtype=float) for name, values in row.look.items()}
                for row in rows
            }
        return self._days

    def _row(self, day: int, names: Mapping[str, np.ndarray]) -> SeriesRow:
        look = {
            name: tuple(None if np.isnan(value) else float(value) for value in steps) for name, steps in names.items()
        }
        known = max((int((~np.isnan(steps)).sum()) for steps in names.values()), default=0)
        return SeriesRow(self._subject.name, DAY_S, day * DAY_S, known, look)
