"""How much longer a job may run, as a distribution to draw from.

A forecast is read as a log-normal length: the expected one is its median, nine in ten stay below the cautious one.
Both are corrected by what forecasts were worth so far (``ordering.forecast_errors``), and what the job has outlived is
cut off. Without a forecast, and once nearly all of it is outlived, the survival table of the cluster says how long jobs
that have come so far go on. While too few have ended for that, a job lasts to its time limit.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np

from millpond.model.workloads import Kind
from millpond.scheduling.ordering.forecasts import NEVER, debt_s
from millpond.scheduling.ordering.survival import BINS, CLASSES, EDGES, bin_of, hazards
from millpond.scheduling.ordering.time_left import TimeLeft
from millpond.scheduling.placement.arrays import FloatArray
from millpond.scheduling.reclaiming.roster import (
    SLOT_ALIVE,
    SLOT_ATTAINED,
    SLOT_BIN,
    SLOT_CLASS,
    SLOT_DEBT,
    SLOT_STARTED,
)
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State

LEAST_ENDED: Final = 10
"""With fewer ends, no forecast and no time limit, nothing is known of a length."""

OUTLIVED: Final = 0.998
"""A forecast of which a job has outlived so much says nothing any more."""

_NORMAL: Final = NormalDist()
_FARTHEST: Final = 3.5
"""Draws are cut off at so many standard deviations."""


@dataclass(slots=True)
class Length:
    """Seconds that a job still runs; never changed. It is not frozen, as thousands are made for an answer.

    Attributes:
        sure_s: as good as certain; below 0: it is not.
        median_s, sigma: of the whole length by its forecast; ``sigma`` below 0: there is none.
        service_s: what it has had.
        past: how much of the forecast, 0..1, that has outlived.
        hazard: (bins + 1,) cumulated hazard at the edges of the survival table.
        extra_s: what a run takes beside the job's own work.
        limit_s: the most it may still run.
    """

    sure_s: float = -1.0
    median_s: float = 0.0
    sigma: float = -1.0
    service_s: float = 0.0
    past: float = 0.0
    hazard: tuple[float, ...] = ()
    extra_s: float = 0.0
    limit_s: float = NEVER

    @property
    def is_known(self) -> bool:
        """Whether a forecast or a time limit says anything of it."""
        return self.sure_s >= 0.0 or self.sigma >= 0.0 or self.limit_s < NEVER

    def drawn_s(self, level: float, stretch: float) -> float:
        """The length that such a part, 0..1, stays below; ``stretch`` multiplies a forecast, twice a guess."""
        if self.sure_s >= 0.0:
            return min(self.sure_s, self.limit_s) + self.extra_s
        if self.sigma >= 0.0:
            normal = _NORMAL.inv_cdf(min(self.past + (1.0 - self.past) * level, 1.0 - 1e-9))
            left = self.median_s * math.exp(self.sigma * min(normal, _FARTHEST)) * stretch - self.service_s
        else:
            left = (self._survived_s(level) - self.service_s) * stretch * stretch
        return min(max(left, 0.0), self.limit_s) + self.extra_s

    def _survived_s(self, level: float) -> float:
        """Service at which it ends, by the survival table."""
        hazard = self.hazard
        here = bin_of(self.service_s)
        part = min((self.service_s - EDGES[here]) / (EDGES[here + 1] - EDGES[here]), 1.0)
        reached = hazard[here] + part * (hazard[here + 1] - hazard[here]) - math.log(1.0 - level + 1e-9)
        there = min(bisect_right(hazard, reached) - 1, BINS - 1)
        part = min((reached - hazard[there]) / (hazard[there + 1] - hazard[there]), 1.0)
        return EDGES[there] + part * (EDGES[there + 1] - EDGES[there])


def drawn_of(lengths: Sequence[Length], levels: FloatArray, stretches: Sequence[float]) -> FloatArray:
    """(futures, jobs) what ``Length.drawn_s`` draws of many at once.

    Args:
        levels: (futures, jobs) the parts, 0..1, which the lengths stay below.
        stretches: (futures,) see there.
    """
    if not lengths:
        return np.zeros_like(levels)
    fields = [
        (own.sure_s, own.median_s, own.sigma, own.service_s, own.past, own.extra_s, own.limit_s) for own in lengths
    ]
    sure, median, sigma, service, past, extra, limit = np.array(fields).T
    stretch = np.array(stretches)[:, None]
    left = np.tile(sure, (len(stretch), 1))
    by_forecast = (sure < 0.0) & (sigma >= 0.0)
    parts = np.minimum(past + (1.0 - past) * levels, 1.0 - 1e-9)[:, by_forecast]
    normal = np.array([_NORMAL.inv_cdf(part) for part in parts.ravel().tolist()]).reshape(parts.shape)
    whole = median[by_forecast] * np.exp(sigma[by_forecast] * np.minimum(normal, _FARTHEST))
    left[:, by_forecast] = whole * stretch - service[by_forecast]
    learnt = dict[tuple[float, ...], list[int]]()
    for number in np.flatnonzero((sure < 0.0) & (sigma < 0.0)).tolist():
        learnt.setdefault(lengths[number].hazard, []).append(number)
    for hazard, numbers in learnt.items():
        reached = np.interp(service[numbers], EDGES, hazard) - np.log(1.0 - levels[:, numbers] + 1e-9)
        left[:, numbers] = (np.interp(reached, hazard, EDGES) - service[numbers]) * stretch * stretch
    drawn: FloatArray = np.minimum(np.maximum(left, 0.0), limit) + extra
    return drawn


class Lengths:
    """The lengths of the jobs of one state.

    Attributes:
        has_learnt: enough jobs have ended to say how long others go on.
    """

    def __init__(self, time_left: TimeLeft, slots: FloatArray, now: float) -> None:
        """``slots``: running work as in ``reclaiming.roster``; it counts as having outlived what it has."""
        self._now = now
        self._errors = time_left.forecast_errors
        table = time_left.survival
        self.has_learnt = table.endings >= LEAST_ENDED
        found = hazards(table.ended, table.outlived + _outliving(slots, now))
        cumulated = np.zeros((CLASSES, BINS + 1))
        cumulated[:, 1:] = np.cumsum(-np.log1p(-np.minimum(found, 0.9999)), axis=1)
        self._hazard = [tuple(row) for row in cumulated.tolist()]

    def of(self, record: JobRecord) -> Length:
        """That of a job that runs or waits."""
        now, limit, expected = self._now, record.job.time_limit_s, record.expected_s
        service = record.service_s(now)
        bounds = (debt_s(record, now), NEVER if limit is None else max(limit - service, 0.0))
        if expected is not None and expected == record.cautious_s:
            return Length(max(expected - service, 0.0), extra_s=bounds[0], limit_s=bounds[1])
        hazard = self._hazard[record.size_class]
        if expected is not None:
            median, sigma = self._errors.corrected(expected, record.cautious_s or expected)
            past = _NORMAL.cdf(math.log(service / median) / sigma) if service > 0.0 else 0.0
            if past < OUTLIVED:
                return Length(-1.0, median, sigma, service, past, hazard, *bounds)
        if not self.has_learnt and limit is not None:
            return Length(bounds[1], extra_s=bounds[0], limit_s=bounds[1])
        return Length(service_s=service, hazard=hazard, extra_s=bounds[0], limit_s=bounds[1])


@dataclass(frozen=True, slots=True)
class ExpectedLengths:
    """How long jobs run on, or run once they have started.

    Attributes:
        left_s: seconds, the middle of what may be, by job; ``NEVER`` where nothing but a request ends it.
        guessed: those of which nothing is known: no forecast, no time limit, and too few jobs have ended.
    """

    left_s: dict[str, float]
    guessed: frozenset[str]


def expected_lengths(state: State) -> ExpectedLengths:
    """Those of all jobs that have not ended."""
    lengths = Lengths(state.ordering.time_left, state.roster.live, state.now)
    left_s: dict[str, float] = {}
    guessed = set[str]()
    for record in state.jobs.values():
        if record.state.ended:
            continue
        length = lengths.of(record)
        if lasts(record):
            left_s[record.id] = NEVER
        else:
            left_s[record.id] = length.drawn_s(0.5, 1.0)
            if not (lengths.has_learnt or length.is_known or record.expected_s is not None):
                guessed.add(record.id)
    return ExpectedLengths(left_s, frozenset(guessed))


def lasts(record: JobRecord) -> bool:
    """Whether nothing but a request ends the job."""
    return record.kept is not None or (record.job.kind is Kind.SERVICE and record.job.time_limit_s is None)


def _outliving(slots: FloatArray, now: float) -> FloatArray:
    """(classes, bins) how many running jobs have outlived each bin since they were last counted."""
    used = slots[[SLOT_ATTAINED, SLOT_STARTED, SLOT_DEBT, SLOT_BIN, SLOT_CLASS]]
    attained, started, debt, bins, classes = used[:, slots[SLOT_ALIVE] > 0.0]
    service = attained + np.maximum(now - started - debt, 0.0)
    reached = np.minimum(np.searchsorted(EDGES, service, side="right") - 1, BINS - 1)
    counted, cells = bins.astype(np.int64), CLASSES * (BINS + 1)
    firsts = classes.astype(np.int64) * (BINS + 1)
    change = np.bincount(firsts + np.minimum(counted, reached), minlength=cells) - np.bincount(
        firsts + reached, minlength=cells
    )
    outlived: FloatArray = np.cumsum(change.reshape(CLASSES, BINS + 1), axis=1)[:, :BINS].astype(np.float64)
    return outlived
