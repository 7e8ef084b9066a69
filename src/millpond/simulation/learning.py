"""Learns the weights of the ordering ``learned`` from a trace, and judges them on later windows of it.

An evolution strategy with mirrored samples (Salimans et al. 2017, "Evolution Strategies as a Scalable Alternative to
Reinforcement Learning"): weights are drawn around the present ones, each is replayed, and the present ones move towards
those that did better, by rank. It begins with weights of zero, which are the default ordering.

What was learnt is believed only if it is better than the default ordering on windows that lie after all it was learnt
from: most of what is won in learning is not there later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from millpond.model.errors import InvalidInputError
from millpond.model.policies import LEARNED_FIGURES, learned_name, without_weights
from millpond.scheduling.placement.arrays import FloatArray
from millpond.scheduling.settings import Settings
from millpond.simulation.kernel import World
from millpond.simulation.queueing import replay
from millpond.simulation.results.metrics import bounded_slowdown
from millpond.simulation.scenario import PREEMPTIVE_ORDERINGS
from millpond.simulation.trace import Workload
from millpond.simulation.worker_pool import worker_pool

WINDOWS, LEARNT_FROM = 4, 2
"""A trace is cut into so many windows of as many jobs each; the first are learnt from, the others judge."""

LEAST_JOBS = 50
"""A window with fewer says little."""

SHORTEST_LEARNT_S = 10.0
"""Shorter jobs count as if they took so long: the usual bound of the bounded slowdown."""

SPREAD, STEP = 0.15, 0.3
"""How far samples lie from the present weights, and how far these move at a time."""

LEAST_GAIN = 0.01
"""A later window is won only if the mean slowdown is lower than the default ordering's by this part."""


@dataclass(frozen=True, slots=True)
class WindowOutcome:
    """What an ordering made of a window.

    Attributes:
        slowdown: mean bounded slowdown.
        jct_s: mean time from submission to end.
    """

    slowdown: float
    jct_s: float


@dataclass(frozen=True, slots=True)
class Judgement:
    """An ordering beside others on the windows that judge.

    Attributes:
        rows: by ordering, an outcome for each window.
        wins: it is better than the default ordering on each of them.
    """

    ordering: str
    rows: dict[str, tuple[WindowOutcome, ...]]

    @property
    def wins(self) -> bool:
        return all(
            own.slowdown <= (1.0 - LEAST_GAIN) * base.slowdown and own.jct_s <= base.jct_s
            for own, base in zip(self.rows[self.ordering], self.rows["default"], strict=True)
        )


def windows_of(world: World) -> list[World]:
    """The world by window, each of which begins with an empty cluster.

    Raises:
        InvalidInputError: there are too few jobs.
    """
    jobs = world.workload.jobs
    if len(jobs) < WINDOWS * LEAST_JOBS:
        raise InvalidInputError(
            f"{len(jobs)} jobs are too few to learn from and to judge by",
            f"give a trace of at least {WINDOWS * LEAST_JOBS} jobs",
        )
    bounds = np.linspace(0, len(jobs), WINDOWS + 1).astype(int)
    return [
        replace(world, workload=Workload(jobs[begin:end], world.workload.source)) for begin, end in pairwise(bounds)
    ]


@contextmanager
def learner_on(windows: Sequence[World], settings: Settings, workers: int) -> Iterator[Learner]:
    """One that has so many processes, each with the windows of a trace."""
    with worker_pool(workers, _remember, list(windows), settings) as pool:
        yield Learner(len(windows), pool)


class Learner:
    """Replays orderings on windows of one trace, in processes of its own."""

    def __init__(self, count: int, pool: ProcessPoolExecutor) -> None:
        self._count = count
        self._pool = pool

    def learn(self, rounds: int, samples: int, seed: int, progress: Callable[[int], None] | None = None) -> str:
        """The name of the ordering that was found on the first windows, the default one's included.

        Args:
            samples: weights drawn in each round; half of them mirror the others.
            progress: called with the rounds done.
        """
        random = np.random.default_rng(seed)
        weights: FloatArray = np.zeros(len(LEARNED_FIGURES))
        [best_cost] = self._costs([weights])
        best = weights
        for number in range(rounds):
            half = random.standard_normal((max(samples // 2, 1), len(weights)))
            drawn = np.concatenate([half, -half])
            [cost, *costs] = self._costs([weights, *(weights + SPREAD * drawn)])
            if cost < best_cost:
                best, best_cost = weights, cost
            merit = _centred_ranks(-np.array(costs))
            weights = weights + STEP * (merit @ drawn) / len(drawn)
            if progress is not None:
                progress(number + 1)
        [cost] = self._costs([weights])
        return learned_name(weights if cost < best_cost else best)

    def judge(self, ordering: str, others: Sequence[str] = ()) -> Judgement:
        """An ordering on the last windows, beside the default one and others."""
        names = list(dict.fromkeys((*others, "default", ordering)))
        windows = range(LEARNT_FROM, self._count)
        asked = {(name, window): self._pool.submit(_play, name, window) for name in names for window in windows}
        outcomes = {key: future.result() for key, future in asked.items()}
        return Judgement(ordering, {name: tuple(outcomes[name, window] for window in windows) for name in names})

    def _costs(self, several: Sequence[FloatArray]) -> list[float]:
        """Of each weights the mean, over the first windows, of the logarithm of the slowdown."""
        asked = [
            [self._pool.submit(_play, learned_name(weights), window) for window in range(LEARNT_FROM)]
            for weights in several
        ]
        return [float(np.mean([np.log(future.result().slowdown) for future in futures])) for futures in asked]


_windows: list[World] = []
_settings: list[Settings] = []


def _remember(windows: list[World], settings: Settings) -> None:
    """In a process of the pool."""
    _windows[:], _settings[:] = windows, [settings]


def _play(ordering: str, window: int) -> WindowOutcome:
    """Replay one window under one ordering, in a process of the pool."""
    [settings] = _settings
    preempt = settings.preempt and without_weights(ordering) in PREEMPTIVE_ORDERINGS
    history = replay(_windows[window], replace(settings, ordering=ordering, preempt=preempt)).history
    done = history.finished
    slowdown = bounded_slowdown(history.jct_s[done], history.duration_s[done], SHORTEST_LEARNT_S)
    return WindowOutcome(float(slowdown.mean()), float(history.jct_s[done].mean()))


def _centred_ranks(values: FloatArray) -> FloatArray:
    """(n,) from -1 for the lowest to 1 for the highest; equal values have equal ranks."""
    ascending = np.sort(values)
    lower, up_to = np.searchsorted(ascending, values, side="left"), np.searchsorted(ascending, values, side="right")
    ranks: FloatArray = (lower + up_to - len(values)) / len(values)
    return ranks
