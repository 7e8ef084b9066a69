"""Replaying a trace of arrivals and durations: how long do jobs wait and take under a policy?

And how good its forecasts of durations were, in the three ways that scheduling cares about.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from millpond.forecasting.durations import Forecast
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import Settings
from millpond.simulation.core import make_scheduler
from millpond.simulation.kernel import Simulation, World
from millpond.simulation.kernel_warmup import warm_up
from millpond.simulation.results.history import History, history_of
from millpond.simulation.results.metrics import Metrics, measure
from millpond.simulation.trace import admissible


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Quality of forecasts.

    Attributes:
        count: jobs that had a forecast.
        mean_log2_error: mean absolute error in doublings: 1 is wrong by a factor of two.
        rank_correlation: Spearman's; what an ordering needs. NaN where one side is constant.
        coverage: part of the jobs that stayed within the cautious length; what a reservation needs.
    """

    count: int
    mean_log2_error: float
    rank_correlation: float
    coverage: float


def accuracy(forecasts: Sequence[Forecast], actual_s: Sequence[float]) -> Accuracy | None:
    """Compare forecasts with what happened; None where there are none."""
    if not forecasts:
        return None
    expected = np.array([forecast.expected_s for forecast in forecasts])
    cautious = np.array([forecast.cautious_s for forecast in forecasts])
    actual = np.maximum(np.asarray(actual_s, dtype=float), 1.0)
    error = float(np.abs(np.log2(np.maximum(expected, 1.0)) - np.log2(actual)).mean())
    within = float((actual <= cautious * (1 + 1e-9)).mean())
    return Accuracy(len(forecasts), error, _correlation(_ranks(expected), _ranks(actual)), within)


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 0; equal values share the mean of theirs."""
    _, group, sizes = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(sizes)
    return (last - (sizes + 1) / 2)[group]


def _correlation(left: np.ndarray, right: np.ndarray) -> float:
    left, right = left - left.mean(), right - right.mean()
    scale = float(np.sqrt((left**2).sum() * (right**2).sum()))
    return float((left * right).sum()) / scale if scale else float("nan")


@dataclass(frozen=True, slots=True)
class QueueingResult:
    """What a policy made of a trace.

    Attributes:
        cycles: how often the scheduler was asked to decide.
        cpu_s: processor time, user and system, from the first event to the last.
        forecasts: how good the forecasts were, with durations ``predicted``.
        stuck: why the first job that never ended waits; empty when all ended.
    """

    metrics: Metrics
    history: History
    cycles: int
    cpu_s: float
    forecasts: Accuracy | None
    stuck: str


def admissible_world(world: World, *, skip_bad_rows: bool) -> World:
    """The world without jobs that its cluster could never take; refused unless they are to be skipped."""
    scheduler = make_scheduler(Settings())
    for event in replace(world, durations="exact").opening():
        scheduler.handle(event)
    return replace(world, workload=admissible(world.workload, scheduler.check, skip_bad_rows=skip_bad_rows))


def replay(world: World, settings: Settings, progress: Callable[[int], None] | None = None) -> QueueingResult:
    """Play the world under one policy and measure it.

    Args:
        progress: called now and then with the number of jobs that have ended.
    """
    warm_up(settings)
    scheduler = make_scheduler(settings)
    simulation = Simulation(world, scheduler)
    before = time.process_time()
    simulation.run(progress)
    cpu_s = time.process_time() - before
    history = history_of(simulation)
    lengths = world.workload.jobs
    return QueueingResult(
        metrics=measure(history),
        history=history,
        cycles=simulation.cycles,
        cpu_s=cpu_s,
        forecasts=accuracy(
            list(simulation.forecasts.values()), [lengths[index].duration_s for index in simulation.forecasts]
        ),
        stuck=_why_stuck(simulation, scheduler),
    )


def _why_stuck(simulation: Simulation, scheduler: Scheduler) -> str:
    for work in simulation.works:
        if work.ended_at != work.ended_at:
            return f"job {work.job.id!r}: {scheduler.explain(work.job.id, simulation.engine.now).summary}"
    return ""
