"""When a waiting job should start: from several possible futures of its pool, played fast on a model of it.

Each future draws how long jobs run and who comes later (``lengths``, ``newcomers``); all forecasts of one future err
together by a little more. The answer is the span in which nearly all futures let the job start, and their middle. The
numbers are drawn by a fixed seed, so that the same question has the same answer; nothing is changed by asking.

A future is the same for all that wait in it. So it is played for one of them as far as its start; for the next one that
has not started by then, to its end; and all others have their answers from that.

The work of a play is bounded: ``MOST_STEPS`` steps of futures, ``pool_model.MOST_NODES`` nodes,
``pool_model.MOST_AHEAD`` and ``pool_model.MOST_BEHIND`` jobs. Beside that the waiting jobs are sorted once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import cycle
from statistics import NormalDist

import numpy as np

from millpond.model.amounts import count_text
from millpond.model.reasons import StartEstimate
from millpond.scheduling.cycle.job_placement import Placer
from millpond.scheduling.estimating.futures import Future
from millpond.scheduling.estimating.lengths import LEAST_ENDED, drawn_of
from millpond.scheduling.estimating.line_order import LineOrder
from millpond.scheduling.estimating.newcomers import Newcomers
from millpond.scheduling.estimating.pool_model import LineUp, PoolModeller, Running, View, view_of
from millpond.scheduling.estimating.pool_state import FirstRuns
from millpond.scheduling.estimating.possible_jobs import Candidate
from millpond.scheduling.ordering.forecasts import NEVER
from millpond.scheduling.placement.arrays import FloatArray
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State

FUTURES = 12
MOST_STEPS, FEWER_STEPS, FEWEST_STEPS = 40_000, 16_000, 8_000
"""Looks at a job, ends and submissions, in all futures of a play together: at most; where queues have guarantees, as
the longer such a future is played, the farther it is from what happens; and where a part of the pool stands for all, as
so many more jobs are asked about there. Waits of a day on a small pool take more than the second."""

EARLY, LATE = 0.1, 0.9
"""The parts of the futures before and behind the ends of the interval."""

STRICT_MARGIN, MARGIN, DISPLACING_MARGIN = 0.1, 0.35, 0.6
"""The model is not the cluster: it errs by such a part of the wait besides, whatever the futures draw: with a strict
ordering, with others, and where the ordering displaces running work. Not so where nothing is drawn."""

UNPLAYED_MARGIN = 1.5
"""Nor are futures that are cut off played to the end: they err by such a part of the wait behind that as well."""

LENGTHS_SPREAD = 0.2
"""How far, in logarithms, all forecasts of one future are off together."""

SAID_AGE_S = 1.0
"""An answer that is older says so."""

_NORMAL = NormalDist()
_DRAWS = 2048
"""Jobs that start have the lengths of so many draws, and then of the same again."""

_SEED = 20_251_123


class StartEstimates:
    """The estimates of one state.

    Attributes:
        order: all that wait,
        as_of: at this instant.
    """

    def __init__(self, state: State, placer: Placer, order: LineOrder) -> None:
        self._state = state
        self._placer = placer
        self.order = order
        self.as_of = state.now
        self._pools: dict[View, _PoolFutures] = {}

    def of(self, record: JobRecord, *, fits_now: bool) -> StartEstimate:
        """The interval in which a job that stands in a line should start, or why nothing is known of it.

        Args:
            fits_now: whether it could start now but for those ahead of it.
        """
        view = view_of(self._state, self._placer, record)
        pool = self._pools.get(view)
        if pool is None or not pool.has(record):
            pool = self._pools[view] = _PoolFutures(self._state, self._placer, view, self.order)
        if pool.why_unknown:
            return _unknown(self._state, pool.why_unknown)
        if not pool.has_nodes_for(record):
            return _unknown(self._state, "too few of the nodes that it asks for stand for its pool in the estimate")
        starts, unplayed_s = pool.starts(record, fits_now=fits_now)
        starts.sort()
        if starts[FUTURES // 2] == NEVER:
            return _unknown(self._state, "what runs and what comes before it leave it no room that can be foreseen")
        return self._interval(starts, unplayed_s, pool, record)

    @property
    def _margin(self) -> float:
        ordering = self._state.ordering
        if ordering.displaces:
            return DISPLACING_MARGIN
        return STRICT_MARGIN if ordering.strict else MARGIN

    def _interval(self, starts: list[float], unplayed_s: float, pool: _PoolFutures, record: JobRecord) -> StartEstimate:
        now, as_of = self._state.now, pool.as_of
        early, likely, late = (_quantile(starts, part) for part in (EARLY, 0.5, LATE))
        margin = self._margin if pool.newcomers.count else 0.0
        beside = math.hypot(margin * likely, UNPLAYED_MARGIN * unplayed_s)
        early = max(likely - math.hypot(likely - early, beside), 0.0)
        latest_at = None if late == NEVER else max(as_of + likely + math.hypot(late - likely, beside), now)
        basis = pool.basis(record)
        if now - as_of >= SAID_AGE_S:
            basis = f"{basis}; as things stood {now - as_of:.0f} s ago"
        return StartEstimate(max(as_of + early, now), latest_at, basis, likely_at=max(as_of + likely, now))


class _Play:
    """The futures of one line-up, each played as far as somebody has asked."""

    def __init__(self, futures: Sequence[Future], most_steps: int) -> None:
        self._futures = futures
        self._most_steps = most_steps

    def starts_s(self, sequence: int) -> tuple[list[float], float]:
        """Seconds until one of those that wait starts, in each future, and how many are not played at the mean."""
        starts = [future.start_s(sequence, self._most_steps) for future in self._futures]
        behind = (start - future.now for future, start in zip(self._futures, starts, strict=True) if start < NEVER)
        return starts, sum(seconds for seconds in behind if seconds > 0.0) / FUTURES


class _PoolFutures:
    """The futures of a pool, for all line-ups, as of the instant at which they were first asked for."""

    def __init__(self, state: State, placer: Placer, view: View, order: LineOrder) -> None:
        self.as_of = state.now
        self._order = order.of_pool(view.pool)
        self._modeller = modeller = PoolModeller(state, placer, view)
        self._known = sum(run.is_known for run in modeller.runs)
        self._has_learnt = state.ordering.time_left.survival.endings >= LEAST_ENDED
        self.why_unknown = ""
        if modeller.runs and not self._known and not self._has_learnt:
            self.why_unknown = "nothing runs whose length is known, and too few jobs have ended to learn from"
            return
        self.newcomers = Newcomers(state, modeller, view.pool)
        draw = np.random.default_rng(_SEED)
        of_runs, of_starts = _levels(draw, len(modeller.runs)), _levels(draw, _DRAWS)
        self._stretches = _spread(draw, LENGTHS_SPREAD)
        rooms = [run.room for run in modeller.runs]
        self._begins = FirstRuns.of_futures(rooms, _ends(modeller.runs, of_runs, self._stretches))
        self._of_starts: list[list[float]] = of_starts.tolist()
        self._streams = [_Stream(self.newcomers, number) for number in range(FUTURES)]
        self._plays: dict[tuple[int, bool], _Play] = {}
        of_small_pool = FEWER_STEPS if state.queues.has_guarantees else MOST_STEPS
        self._most_steps = FEWEST_STEPS if modeller.every > 1 else of_small_pool

    def has(self, record: JobRecord) -> bool:
        """Whether a job waited in it."""
        return record in self._order

    def has_nodes_for(self, record: JobRecord) -> bool:
        """Whether enough of the nodes that a job asks for by their labels are looked at."""
        return self._modeller.has_nodes_for(record)

    def basis(self, record: JobRecord) -> str:
        """What an answer rests on."""
        ahead, newcomers = self._order.place_of(record), self.newcomers
        count, known = len(self._modeller.runs), self._known
        lengths = "by forecast or time limit" if known else "by history"
        if 0 < known < count:
            lengths = f"{known} {lengths}, the rest {'by history' if self._has_learnt else 'without a known end'}"
        running = f"{count_text(count, 'running job')} ({lengths})" if count else "no running job"
        later = f"the last {newcomers.count} submissions for later ones" if newcomers.count else "no later submissions"
        return f"{running}, {ahead} ahead in its pool, {later}"

    def starts(self, record: JobRecord, *, fits_now: bool) -> tuple[list[float], float]:
        """Seconds until one that waits starts, in each future, and how many are not played at the mean."""
        place = self._order.place_of(record)
        line_up, own = self._modeller.line_up(self._order, place)
        sequence = line_up.ranked[own][1]
        if line_up.pace != 1.0:
            starts, unplayed_s = self._play(line_up, fits_now=fits_now).starts_s(sequence)
            return [start * line_up.pace for start in starts], unplayed_s * line_up.pace
        key = (place % self._modeller.every, fits_now)
        play = self._plays.get(key)
        if play is None:
            play = self._plays[key] = self._play(line_up, fits_now=fits_now)
        return play.starts_s(sequence)

    def _play(self, line_up: LineUp, *, fits_now: bool) -> _Play:
        """The futures of a line-up, from their beginning."""
        model = self._modeller.model(line_up, fits_now=fits_now)
        # Behind a strict order nobody matters who comes later and cannot go before the last of them.
        matter = not model.strict or self.newcomers.may_overtake(model.waiting.entries[-1])
        futures = [
            Future(
                model,
                begin,
                self._streams[number].replay() if matter else iter(()),
                cycle(self._of_starts[number]),
                self._stretches[number],
            )
            for number, begin in enumerate(self._begins)
        ]
        return _Play(futures, self._most_steps // FUTURES)


class _Stream:
    """Who comes in one future; drawn once, as far as a play has come."""

    def __init__(self, newcomers: Newcomers, number: int) -> None:
        self._rest = newcomers.stream(np.random.default_rng((_SEED, number)), (number + 0.5) / FUTURES)
        self._drawn: list[tuple[float, Candidate]] = []

    def replay(self) -> Iterator[tuple[float, Candidate]]:
        """All of them, from the first."""
        place = 0
        while True:
            if place == len(self._drawn):
                coming = next(self._rest, None)
                if coming is None:
                    return
                self._drawn.append(coming)
            yield self._drawn[place]
            place += 1


def _unknown(state: State, why: str) -> StartEstimate:
    return StartEstimate(state.now, None, "", unknown=why)


def _ends(runs: Sequence[Running], levels: FloatArray, stretches: Sequence[float]) -> list[list[float]]:
    """When those that run end in each future."""
    drawn = drawn_of([run.length for run in runs], levels, stretches)
    leaves_s, stays_s = np.array([run.leaves_s for run in runs]), np.array([run.stays_s for run in runs])
    ends: list[list[float]] = np.maximum(np.minimum(drawn, leaves_s), stays_s).tolist()
    return ends


def _levels(draw: np.random.Generator, count: int) -> FloatArray:
    """(futures, count) numbers between 0 and 1, each column evenly spread over the futures."""
    levels: FloatArray = draw.permuted(np.tile(((np.arange(FUTURES) + 0.5) / FUTURES)[:, None], count), axis=0)
    return levels


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
