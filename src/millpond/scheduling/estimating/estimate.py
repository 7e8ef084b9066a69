"""When a waiting job should start: from several possible futures of its pool, played fast on a model of it.

Each future draws how long jobs run and who comes later (``lengths``, ``newcomers``); all forecasts of one future err
together by a little more. The answer is the span in which nearly all futures let the job start, and their middle. The
numbers are drawn by a fixed seed, so that the same question has the same answer; nothing is changed by asking.

The work is bounded: ``MOST_STEPS`` steps of futures, ``pool_model.MOST_NODES`` nodes, ``pool_model.MOST_AHEAD`` and
``pool_model.MOST_BEHIND`` jobs; beside that the waiting jobs are sorted, and those that run are looked at, once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import cycle
from statistics import NormalDist

import numpy as np

from millpond.model.reasons import StartEstimate
from millpond.scheduling.cycle.job_placement import Placer
from millpond.scheduling.estimating.futures import Future, PoolModel
from millpond.scheduling.estimating.lengths import LEAST_ENDED
from millpond.scheduling.estimating.newcomers import Newcomers
from millpond.scheduling.estimating.pool_model import FloatArray, PoolModeller
from millpond.scheduling.ordering.forecasts import NEVER
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State

FUTURES = 12
MOST_STEPS = 16_000
"""Looks at a job, ends and submissions, in all futures together."""

EARLY, LATE = 0.05, 0.95
"""The parts of the futures before and behind the ends of the interval."""

STRICT_MARGIN, MARGIN = 0.1, 0.25
"""By such a part the interval is wider on each side, with a strict ordering and with others, unless nothing is drawn:
the model is not the cluster."""

LENGTHS_SPREAD = 0.2
"""How far, in logarithms, all forecasts of one future are off together."""

_NORMAL = NormalDist()
_DRAWS = 2048
"""Jobs that start have the lengths of so many draws, and then of the same again."""

_SEED = 20_251_123


def start_of(state: State, placer: Placer, record: JobRecord, *, fits_now: bool) -> StartEstimate:
    """The interval in which a job that stands in a line should start, or why nothing is known of it.

    Args:
        fits_now: whether it could start now but for those ahead of it.
    """
    modeller = PoolModeller(state, placer, record)
    model = modeller.model(fits_now=fits_now)
    known = sum(length.is_known or leaves_s < NEVER for _, length, leaves_s in modeller.runs)
    if modeller.runs and not known and state.ordering.time_left.survival.endings < LEAST_ENDED:
        return _unknown(state, "nothing runs whose length is known, and too few jobs have ended to learn from")
    newcomers = Newcomers(state, modeller, record.job.pool)
    starts = sorted(_starts(modeller, model, newcomers))
    if starts[FUTURES // 2] == NEVER:
        return _unknown(state, "what runs and what comes before it leave it no room that can be foreseen")
    margin = 0.0
    if newcomers.count:
        margin = STRICT_MARGIN if state.ordering.strict else MARGIN
    early, likely, late = _quantile(starts, EARLY) * (1.0 - margin), _quantile(starts, 0.5), _quantile(starts, LATE)
    latest_at = None if late == NEVER else state.now + late * (1.0 + margin)
    basis = _basis(modeller, known, newcomers)
    return StartEstimate(state.now + early, latest_at, basis, likely_at=state.now + likely)


def _unknown(state: State, why: str) -> StartEstimate:
    return StartEstimate(state.now, None, "", unknown=why)


def _basis(modeller: PoolModeller, known: int, newcomers: Newcomers) -> str:
    count = len(modeller.runs)
    later = f"the last {newcomers.count} submissions for later ones" if newcomers.count else "no later submissions"
    return (
        f"{count} running job{'s' * (count != 1)} ({known} with a forecast or time limit, the rest from history), "
        f"{modeller.ahead} ahead in its pool, {later}"
    )


def _starts(modeller: PoolModeller, model: PoolModel, newcomers: Newcomers) -> Iterator[float]:
    """Seconds until the job starts, in each future."""
    draw = np.random.default_rng(_SEED)
    matter = not model.strict or newcomers.may_overtake(model.target)
    of_runs, of_starts = _normals(draw, len(modeller.runs)), _normals(draw, _DRAWS)
    for number, stretch in enumerate(_spread(draw, LENGTHS_SPREAD)):
        ends = [
            min(length.drawn_s(normal, stretch), leaves_s)
            for normal, (_, length, leaves_s) in zip(of_runs[number].tolist(), modeller.runs, strict=True)
        ]
        stream = newcomers.stream(np.random.default_rng((_SEED, number))) if matter else iter(())
        future = Future(model, ends, stream, cycle(of_starts[number].tolist()), stretch)
        yield future.start_s(MOST_STEPS // FUTURES) * modeller.pace


def _normals(draw: np.random.Generator, count: int) -> FloatArray:
    """(futures, count) normally distributed numbers, each column evenly spread over the futures."""
    levels = [_NORMAL.inv_cdf((number + 0.5) / FUTURES) for number in range(FUTURES)]
    spread: FloatArray = draw.permuted(np.tile(np.array(levels)[:, None], count), axis=0)
    return spread


def _spread(draw: np.random.Generator, sigma: float) -> list[float]:
    """One log-normal factor for each future, evenly spread, in a random order."""
    parts = (draw.permutation(FUTURES) + 0.5) / FUTURES
    return [math.exp(sigma * _NORMAL.inv_cdf(part)) for part in parts.tolist()]


def _quantile(starts: list[float], part: float) -> float:
    """The quantile by linear interpolation of sorted values, of which the last may be infinite."""
    place = part * (len(starts) - 1)
    low = int(place)
    high = min(low + 1, len(starts) - 1)
    if starts[high] == NEVER:
        return starts[low] if place - low < 0.5 else NEVER
    return starts[low] + (place - low) * (starts[high] - starts[low])
