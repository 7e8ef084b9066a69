"""Figures of merit of a replay, each defined where it is computed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from millpond.scheduling.placement.arrays import FloatArray
from millpond.simulation.results.fairness import jain_index, tenant_shares
from millpond.simulation.results.history import History
from millpond.simulation.results.series import allocation

SHORTEST_MEASURED_S = 1.0
"""Durations below this count as this much in slowdowns, which would otherwise have no bound."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A distribution in four numbers; percentiles interpolate linearly."""

    mean: float
    median: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True)
class Metrics:
    """All figures of one replay, over the jobs that ended.

    Attributes:
        jct_s: from submission to end.
        wait_s: all time without cards in between, also after preemptions.
        response_s: from submission to the first start.
        slowdown: completion time over duration.
        makespan_s: from the first submission to the last end.
        jobs_per_hour: finished jobs over the makespan.
        allocation_percent: GPU time held over GPU time there was; jobs that share a card both hold it.
        utilisation_percent: the same of useful work: without start-up, overhead and repeated work.
        jain_index: over tenants, of 1 / rho; over jobs, of 1 / slowdown, where there is only one tenant.
        worst_rho: largest mean finish-time fairness of a tenant.
        deadlines, deadline_misses: finished jobs that have one, and those of them that ended later.
        overhead_gpu_hours: GPU time spent on what preemptions cost.
        lost_gpu_hours: GPU time of work that was done twice.
        unfinished: jobs that never ended.
    """

    jobs: int
    unfinished: int
    jct_s: Spread
    wait_s: Spread
    response_s: Spread
    slowdown: Spread
    makespan_s: float
    jobs_per_hour: float
    allocation_percent: float
    utilisation_percent: float
    jain_index: float
    worst_rho: float
    deadlines: int
    deadline_misses: int
    preemptions: int
    overhead_gpu_hours: float
    lost_gpu_hours: float


def bounded_slowdown(jct_s: FloatArray, duration_s: FloatArray, shortest_s: float) -> FloatArray:
    """(jobs,) completion times over durations, of which shorter ones than ``shortest_s`` count as that; 1 at least."""
    return np.maximum(jct_s / np.maximum(duration_s, shortest_s), 1.0)


def measure(history: History) -> Metrics:
    """Compute all figures."""
    done = history.finished
    start_at = float(history.submit_at.min())
    end_at = float(history.ended_at[done].max()) if done.any() else start_at
    makespan_s = end_at - start_at
    slowdown = bounded_slowdown(history.jct_s[done], history.duration_s[done], SHORTEST_MEASURED_S)
    shares = tenant_shares(history)
    speeds = np.array([1 / share.rho for share in shares]) if len(shares) > 1 else 1 / slowdown
    room_s = makespan_s * history.capacity_milli
    useful = float((history.duration_s * history.gpu_milli)[done].sum())
    missed = done & (history.ended_at > history.deadline_at)
    return Metrics(
        jobs=int(done.sum()),
        unfinished=int((~done).sum()),
        jct_s=_spread(history.jct_s[done]),
        wait_s=_spread(history.wait_s[done]),
        response_s=_spread((history.first_start_at - history.submit_at)[done]),
        slowdown=_spread(slowdown),
        makespan_s=makespan_s,
        jobs_per_hour=float(done.sum()) / makespan_s * 3600 if makespan_s else float("nan"),
        allocation_percent=100 * allocation(history).mean(start_at, end_at) / max(history.capacity_milli, 1),
        utilisation_percent=100 * useful / room_s if room_s else float("nan"),
        jain_index=jain_index(speeds),
        worst_rho=max((share.rho for share in shares), default=float("nan")),
        deadlines=int((done & ~np.isnan(history.deadline_at)).sum()),
        deadline_misses=int(missed.sum()),
        preemptions=int(history.preemptions.sum()),
        overhead_gpu_hours=_gpu_hours(history.overhead_s, history),
        lost_gpu_hours=_gpu_hours(history.lost_s, history),
    )


def _spread(values: FloatArray) -> Spread:
    if not len(values):
        return Spread(*[float("nan")] * 4)
    median, p99 = np.percentile(values, [50, 99])
    return Spread(float(values.mean()), float(median), float(p99), float(values.max()))


def _gpu_hours(seconds: FloatArray, history: History) -> float:
    return float((seconds * history.gpu_milli).sum() / 3_600_000)
