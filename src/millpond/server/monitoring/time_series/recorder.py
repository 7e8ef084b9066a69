"""Looks at the pool each minute and keeps what charts need: minutes for two days, then coarser, for 30 days.

A look is one transaction, so a killed server has lost one minute at the most. Afterwards what is too old is dropped, so
the table is bounded by time; the number of series is bounded by ``figures``. For an hour after the clock has leapt no
row is dropped or made of others: by a clock that is wrong, all hours are over, or have not come yet. Of the nodes of a
large pool, which are kept in parts, minutes are only what the coarser rows are made of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Final

from sqlalchemy.exc import DBAPIError

from millpond.model.hardware.telemetry import DeviceSample
from millpond.node.host.clocks import WallClock
from millpond.node.host.periodic_worker import EXPECTED, Periodic, PeriodicWorker
from millpond.scheduling.nodes.views import NodeView
from millpond.scheduling.tenancy.queue_views import QueueStatus
from millpond.server.monitoring.telemetry.sampling import Telemetry
from millpond.server.monitoring.time_series.figures import (
    FIGURES,
    PARTS_OF_NODES,
    Subject,
    look_at_cards,
    look_at_queues,
    merged,
)
from millpond.server.store.statistics.time_series import KeptSpan, SeriesRow, TimeSeriesStore

Standing = Callable[[], tuple[Sequence[NodeView], Sequence[QueueStatus]]]

_MINUTE_S: Final = 60
_HOUR_S: Final = 3_600
_DAY_S: Final = 86_400
_FIRST_AFTER_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Resolution:
    """Rows of one length, and how long they are kept; seconds."""

    step_s: int
    kept_s: int


RESOLUTIONS: Final = (
    Resolution(_MINUTE_S, 2 * _DAY_S),
    Resolution(10 * _MINUTE_S, 8 * _DAY_S),
    Resolution(60 * _MINUTE_S, 30 * _DAY_S),
)
"""The finest first; each step is a multiple of the one before."""
RESOLUTIONS_OF_PARTS: Final = (
    Resolution(_MINUTE_S, 120 * _MINUTE_S),
    Resolution(10 * _MINUTE_S, 2 * _DAY_S),
    Resolution(60 * _MINUTE_S, 30 * _DAY_S),
)
_KEPT: Final[tuple[tuple[tuple[str, ...], tuple[Resolution, ...]], ...]] = (
    (tuple(Subject), RESOLUTIONS),
    (PARTS_OF_NODES, RESOLUTIONS_OF_PARTS),
)
"""Subjects that are looked at together; the first of them has a row wherever one of them has."""


class TimeSeriesRecorder(Periodic):
    """Keeps the history of one server's pool, on a thread of its own.

    Args:
        standing: gives the machines and the queues as they are now.
        telemetry: gives the samples of the devices.
    """

    _first_after_s = _FIRST_AFTER_S

    def __init__(self, standing: Standing, telemetry: Telemetry, store: TimeSeriesStore, clock: WallClock) -> None:
        self._standing = standing
        self._telemetry = telemetry
        self._store = store
        self._clock = clock
        self._looked_at: float | None = None
        self._leapt_at = -math.inf
        self._worker = PeriodicWorker(
            "time-series", self._pass, _MINUTE_S, "the history of the pool is not kept now", (*EXPECTED, DBAPIError)
        )

    def look(self) -> None:
        """Keep how things stand in this minute, and what follows for the coarser rows."""
        now = self._clock()
        is_believed = self._is_believed(now)
        nodes, queues = self._standing()
        looks = look_at_cards(nodes, lambda device: self._samples(device, now))
        looks[Subject.QUEUES] = look_at_queues(queues)
        at = int(now // _MINUTE_S) * _MINUTE_S
        self._store.write([SeriesRow(subject, _MINUTE_S, at, 1, look) for subject, look in looks.items()])
        if not is_believed:
            return
        for subjects, levels in _KEPT:
            for finer, coarser in pairwise(levels):
                self._store.write(list(self._coarser(subjects, finer, coarser, now)))
        self._store.forget(
            [
                KeptSpan(subjects, level.step_s, now - level.kept_s, now)
                for subjects, levels in _KEPT
                for level in levels
            ]
        )

    def _is_believed(self, now: float) -> bool:
        """Whether the clock has gone on for an hour without a leap, which also is how a time without a server looks."""
        before = self._looked_at
        if before is None:
            before = self._store.latest(Subject.MODELS, _MINUTE_S, math.inf)
        self._looked_at = now
        if before is not None and not -_MINUTE_S <= now - before <= _HOUR_S:
            self._leapt_at = now
        return now - self._leapt_at >= _HOUR_S

    def _samples(self, device: str, now: float) -> list[DeviceSample]:
        return [sample for at, sample in self._telemetry.recent(device) if now - at <= _MINUTE_S]

    def _coarser(
        self, subjects: Sequence[str], finer: Resolution, coarser: Resolution, now: float
    ) -> Iterator[SeriesRow]:
        """The rows of a level that are over and not there yet, made of the finer ones."""
        end = int(now // coarser.step_s) * coarser.step_s
        last = self._store.latest(subjects[0], coarser.step_s, now)
        begin = 0 if last is None else last + coarser.step_s
        if begin >= end or self._store.latest(subjects[0], finer.step_s, now) is None:
            return
        for subject in subjects:
            figures = FIGURES[Subject(subject.partition("/")[0])]
            rows = self._store.between(subject, finer.step_s, begin, end)
            for at, group in groupby(rows, lambda row: row.at // coarser.step_s * coarser.step_s):
                samples, look = merged(figures, [(row.samples, row.look) for row in group])
                yield SeriesRow(subject, coarser.step_s, at, samples, look)

    def _pass(self) -> float:
        self.look()
        return _MINUTE_S - self._clock() % _MINUTE_S
