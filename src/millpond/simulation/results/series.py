"""Step functions of time: how much was held, how many waited."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from millpond.scheduling.placement.arrays import FloatArray
from millpond.simulation.results.history import History


@dataclass(frozen=True, slots=True)
class StepFunction:
    """A function that is constant from each instant to the next.

    Attributes:
        at: instants, rising; ``value[i]`` holds from ``at[i]`` until ``at[i + 1]``.
    """

    at: FloatArray
    value: FloatArray

    def mean(self, start_at: float, end_at: float) -> float:
        """The time average over an interval; before its first instant the function is 0."""
        edges = np.array([start_at, end_at])
        total = np.diff(self._integral(edges))
        return float(total[0] / (end_at - start_at)) if end_at > start_at else 0.0

    def means(self, edges: FloatArray) -> FloatArray:
        """Time averages over the intervals between ``edges``."""
        return np.diff(self._integral(edges)) / np.diff(edges)

    def _integral(self, until: FloatArray) -> FloatArray:
        """The integral from the first instant to each of ``until``."""
        if not len(self.at):
            return np.zeros_like(until)
        before = np.concatenate(([0.0], np.cumsum(np.diff(self.at) * self.value[:-1])))
        index = np.searchsorted(self.at, until, side="right") - 1
        inside = before[index] + (until - self.at[index]) * self.value[index]
        return np.where(index >= 0, inside, 0.0)


def steps(at: FloatArray, change: FloatArray) -> StepFunction:
    """The running sum of changes at given instants."""
    instants, group = np.unique(at, return_inverse=True)
    return StepFunction(instants, np.cumsum(np.bincount(group, weights=change, minlength=len(instants))))


def allocation(history: History) -> StepFunction:
    """GPU milli held over time."""
    held = np.array([sum(g.compute_milli for p in run.placements for g in p.grants) for run in history.runs], float)
    starts = np.array([run.start_at for run in history.runs])
    ends = np.array([run.end_at for run in history.runs])
    return steps(np.concatenate((starts, ends)), np.concatenate((held, -held)))


def queue_length(history: History) -> StepFunction:
    """Jobs that are submitted, have not ended, and hold nothing."""
    present = history.finished
    starts = np.array([run.start_at for run in history.runs])
    ends = np.array([run.end_at for run in history.runs])
    submitted, ended = history.submit_at, history.ended_at[present]
    at = np.concatenate((submitted, ended, starts, ends))
    one = np.ones
    change = np.concatenate((one(len(submitted)), -one(len(ended)), -one(len(starts)), one(len(ends))))
    return steps(at, change)
