"""Reads the pool's history for a span: rows whose length fits, and finer ones where these lack the end."""

from __future__ import annotations

import math
import threading
from collections.abc import Collection
from dataclasses import dataclass
from itertools import groupby
from typing import Final, NamedTuple

from millpond.model.errors import InvalidInputError
from millpond.model.units import DAY_S
from millpond.node.host.clocks import WallClock
from millpond.server.monitoring.time_series.figures import FIGURES, Look, Subject, merged, part_of
from millpond.server.monitoring.time_series.recorder import RESOLUTIONS, RESOLUTIONS_OF_PARTS, Resolution
from millpond.server.store.statistics.time_series import SeriesRow, TimeSeriesStore
from millpond.specs.api.reports.time_series import NamedSeries, TimeSeriesInfo

MOST_POINTS: Final = 1_500
"""Of each series in one answer."""
_REMEMBERED: Final = 16


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """What is asked for.

    Attributes:
        begin, end: in seconds since 1970; None: a day before the end, and now.
        step_s: how long each point stands for, at least; the answer says how long it is.
    """

    begin: float | None = None
    end: float | None = None
    step_s: float = 0.0


class SeriesQuery(NamedTuple):
    """What is read; spans are whole steps, seconds; ``names`` is None for all series."""

    subject: Subject
    levels: tuple[Resolution, ...]
    begin: int
    end: int
    step: int
    names: frozenset[str] | None


class TimeSeriesReader:
    """Answers querys about the history. Any thread."""

    def __init__(self, store: TimeSeriesStore, clock: WallClock) -> None:
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[SeriesQuery, tuple[int | None, list[tuple[int, Look]]]] = {}

    def of(self, subject: Subject, span: TimeSpan, names: Collection[str] | None = None) -> TimeSeriesInfo:
        """The history of a subject.

        Args:
            names: of which series; None: all, of nodes those that are not kept in parts.

        Raises:
            InvalidInputError: the span is none.
        """
        end = self._clock() if span.end is None else span.end
        begin = max(end - DAY_S, 0.0) if span.begin is None else span.begin
        if not begin < end:
            raise InvalidInputError("the span ends before it begins", "give an earlier `from`, or a later `to`")
        chosen = None if names is None else frozenset(names)
        levels = self._levels(subject, chosen)
        step = self._step(levels, begin, end, span.step_s)
        first, last = int(begin // step) * step, math.ceil(end / step) * step
        looks = self._looks(SeriesQuery(subject, levels, first, last, step, chosen))
        found = dict.fromkeys(name for _, look in looks for name in look)
        unknown = (None,) * len(FIGURES[subject])
        columns = {name: list(zip(*(look.get(name, unknown) for _, look in looks), strict=True)) for name in found}
        return TimeSeriesInfo(
            subject=subject.value,
            begin=float(first),
            end=float(last),
            step_s=step,
            at=[float(at) for at, _ in looks],
            series=[
                NamedSeries(
                    name=name,
                    figures={
                        figure: list(values) for figure, values in zip(FIGURES[subject], columns[name], strict=True)
                    },
                )
                for name in sorted(found)
            ],
        )

    def _levels(self, subject: Subject, names: frozenset[str] | None) -> tuple[Resolution, ...]:
        """Those of which there are rows: of nodes that are kept in parts now, these."""
        first = RESOLUTIONS_OF_PARTS[0].step_s
        if subject is not Subject.NODES or not names:
            return RESOLUTIONS
        now_in_parts = self._store.latest(part_of(min(names)), first, self._clock()) is not None
        return RESOLUTIONS_OF_PARTS if now_in_parts else RESOLUTIONS

    def _step(self, levels: tuple[Resolution, ...], begin: float, end: float, wanted_s: float) -> int:
        """A multiple of the length of rows that are kept for all of the span, at least as long as is wanted."""
        least_s = max(wanted_s, (end - begin) / MOST_POINTS)
        reach_s = self._clock() - begin
        level = next((level for level in levels if level.kept_s >= reach_s), levels[-1])
        coarsest = max((each.step_s for each in levels if level.step_s <= each.step_s <= least_s), default=level.step_s)
        return max(math.ceil(least_s / coarsest), 1) * coarsest

    def _looks(self, query: SeriesQuery) -> list[tuple[int, Look]]:
        """One look for each step of the span of which anything is known; made once for all who ask in one minute."""
        latest = self._store.latest(Subject.MODELS, RESOLUTIONS[0].step_s, self._clock())
        with self._lock:
            known = self._known.get(query)
        if known is not None and known[0] == latest:
            return known[1]
        looks: list[tuple[int, Look]] = [
            (at, merged(FIGURES[query.subject], [(row.samples, row.look) for row in rows])[1])
            for at, rows in groupby(self._rows(query), lambda row: row.at // query.step * query.step)
        ]
        with self._lock:
            self._known.pop(query, None)
            self._known[query] = latest, looks
            while len(self._known) > _REMEMBERED:
                del self._known[next(iter(self._known))]
        return looks

    def _rows(self, query: SeriesQuery) -> list[SeriesRow]:
        """In order of their begin; of nodes, those of the whole and of the parts in which they are or once were."""
        parts = {part_of(name) for name in query.names or ()} if query.subject is Subject.NODES else set()
        found = [row for subject in (query.subject, *sorted(parts)) for row in self._rows_of(subject, query)]
        return sorted(found, key=lambda row: row.at) if parts else found

    def _rows_of(self, subject: str, query: SeriesQuery) -> list[SeriesRow]:
        rows: list[SeriesRow] = []
        begin = query.begin
        for level in reversed([level for level in query.levels if query.step % level.step_s == 0]):
            found = self._store.between(subject, level.step_s, begin, query.end, query.names)
            rows += found
            begin = found[-1].at + level.step_s if found else begin
        return rows
