"""The hours to come as arrays: what energy should cost or emit over a run that begins at one instant or another, and
whether cards should be free for it.

Cards that run free up when their jobs should have ended; what waits in lines, and jobs that are held for an hour, take
them first. Who waits for hours of which all others think too then spreads over the next best ones.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Final

import numpy as np

from millpond.model.events import EnergyRatePredicted
from millpond.model.units import HOUR_S
from millpond.scheduling.estimating.lengths import lasts
from millpond.scheduling.ordering.backlog import length_s
from millpond.scheduling.placement.arrays import BoolArray, FloatArray
from millpond.scheduling.state import State

_ROUNDING: Final = 1.0
"""Milli-card-seconds by which sums may differ."""


class PredictedHours:
    """The hours that something is predicted of, from the present one on.

    Args:
        now: runs begin at this instant or later.
    """

    def __init__(self, predicted: EnergyRatePredicted, now: float) -> None:
        self._begins = predicted.begins_at + HOUR_S * np.arange(len(predicted.values))
        self._ends = self._begins + HOUR_S
        self._begins = np.maximum(self._begins, now)
        values = np.array([np.nan if value is None else value for value in predicted.values], dtype=np.float64)
        self._unknown = np.isnan(values)
        self._values = np.where(self._unknown, 0.0, values)

    @property
    def lengths_s(self) -> FloatArray:
        """(hours,) how many seconds of each are to come."""
        found: FloatArray = np.maximum(self._ends - self._begins, 0.0)
        return found

    def starts(self, first: float, latest: float) -> FloatArray:
        """Two instants, and the beginnings of all hours between them."""
        between = self._begins[(self._begins > first) & (self._begins < latest)]
        found: FloatArray = np.concatenate(([first], between, [latest]))
        return found

    def overlaps(self, starts: FloatArray, lengths_s: FloatArray) -> FloatArray:
        """(starts, hours) how many seconds of each hour runs take that begin then and last so long each."""
        begins = np.maximum(starts[:, np.newaxis], self._begins)
        ends = np.minimum((starts + lengths_s)[:, np.newaxis], self._ends)
        found: FloatArray = np.maximum(ends - begins, 0.0)
        return found

    def means(self, overlaps: FloatArray) -> FloatArray:
        """(starts,) the mean value over each run, as far as hours are predicted; NaN if it takes an unknown one."""
        covered = overlaps.sum(axis=1)
        is_known = (covered > 0.0) & ~(overlaps[:, self._unknown] > 0.0).any(axis=1)
        found: FloatArray = np.full(len(overlaps), np.nan)
        found[is_known] = (overlaps[is_known] @ self._values) / covered[is_known]
        return found


class FreeHours:
    """How much of the cards of a pool should be free in each hour, in milli-card-seconds."""

    def __init__(self, state: State, pool: str, hours: PredictedHours) -> None:
        self._free = state.cluster.idle_milli().get(pool, 0) * hours.lengths_s
        running = [
            record
            for record in state.running.values()
            if record.job.pool == pool and record.id not in state.suspended and not lasts(record)
        ]
        if running:
            time_left, now = state.ordering.time_left, state.now
            ends = np.array([time_left.expected_end(record, now) for record in running])
            sizes = np.array([float(record.gpu_milli) for record in running])
            never = np.full(len(ends), np.inf)
            self._free += sizes @ hours.overlaps(ends, never)
        waiting = sorted((each for each in state.waiting if each.job.pool == pool), key=attrgetter("sequence"))
        if waiting:
            sizes = np.array([float(record.gpu_milli) for record in waiting])
            lengths = np.array([length_s(record) for record in waiting])
            self._give_to_lines(sizes @ hours.overlaps(np.full(len(waiting), state.now), lengths))

    def _give_to_lines(self, demand: FloatArray) -> None:
        """What waits takes whatever is free first; what finds nothing in an hour asks again in the next.

        Args:
            demand: (hours,) what it would take if all of it began now.
        """
        left = 0.0
        for hour, wanted in enumerate(demand.tolist()):
            left += wanted
            taken = min(left, float(self._free[hour]))
            self._free[hour] -= taken
            left -= taken

    def fits(self, gpu_milli: int, overlaps: FloatArray) -> BoolArray:
        """(starts,) whether so many cards should be free for each run."""
        found: BoolArray = np.all(overlaps * gpu_milli <= self._free + _ROUNDING, axis=1)
        return found

    def take(self, gpu_milli: FloatArray, overlaps: FloatArray) -> None:
        """Runs are to have so many cards each."""
        self._free = np.maximum(self._free - gpu_milli @ overlaps, 0.0)
