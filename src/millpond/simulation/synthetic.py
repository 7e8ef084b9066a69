"""Made-up workloads with the traits of GPU clusters: a day cycle, heavy tails, mostly small jobs, habits of users."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from millpond.model.errors import InvalidInputError
from millpond.model.units import DAY_S
from millpond.model.workloads import Job
from millpond.simulation.trace import TraceJob, Workload, gang_roles

# Sizes and their shares, roughly those of the Philly trace (Jeon et al., ATC'19): most jobs want one card.
SIZES = ((1, 0.70), (2, 0.08), (4, 0.10), (8, 0.09), (16, 0.02), (32, 0.01))


KINDS = ("train", "tune", "evaluate", "prepare")
"""Names of the jobs of each user; the durations of one kind resemble each other."""


@dataclass(frozen=True, slots=True)
class SyntheticOptions:
    """What to make.

    Attributes:
        jobs: how many.
        load: GPU time asked for, over the GPU time that the cluster has while jobs arrive.
        day_swing: how much arrivals rise above and fall below their mean within a day, 0..1.
        median_s, spread: of the log-normal durations; ``spread`` is the standard deviation of the natural log.
        users: how many users submit; each repeats a few kinds of job, whose durations resemble each other.
    """

    jobs: int = 1000
    load: float = 0.9
    day_swing: float = 0.6
    median_s: float = 1200.0
    spread: float = 1.7
    users: int = 12

    def __post_init__(self) -> None:
        if self.jobs < 1 or self.users < 1 or self.median_s <= 0 or self.spread < 0:
            raise InvalidInputError("a synthetic workload without jobs, users or durations", "ask for at least one")
        if self.load <= 0:
            raise InvalidInputError(f"an offered load of {self.load}", "use a number above 0, such as 0.9")
        if not 0 <= self.day_swing <= 1:
            raise InvalidInputError(f"a day swing of {self.day_swing}", "use a number from 0 to 1")


def synthesise(options: SyntheticOptions, total_cards: int, cards_per_node: int, seed: int) -> Workload:
    """A workload for a cluster of ``total_cards``; the same arguments give the same workload."""
    draws = np.random.default_rng(seed)
    sizes = np.array([size for size, _ in SIZES if size <= total_cards])
    shares = np.array([share for size, share in SIZES if size <= total_cards])
    kinds = options.users * len(KINDS)
    kind_median = options.median_s * np.exp(draws.normal(0.0, options.spread * 0.9, kinds))
    kind_size = draws.choice(sizes, kinds, p=shares / shares.sum())
    kind = draws.integers(kinds, size=options.jobs)
    within_kind = options.spread * math.sqrt(1 - 0.9**2)
    duration_s = np.clip(kind_median[kind] * np.exp(draws.normal(0.0, within_kind, options.jobs)), 10.0, 30 * DAY_S)
    span_s = float((duration_s * kind_size[kind]).sum()) / (options.load * total_cards)
    submit_at = _day_cycle(np.sort(draws.uniform(0.0, span_s, options.jobs)), options.day_swing)
    jobs = []
    for number in range(options.jobs):
        user, name = f"user-{kind[number] // len(KINDS)}", KINDS[kind[number] % len(KINDS)]
        roles = gang_roles(int(kind_size[kind[number]]), cards_per_node)
        job = Job(f"job-{number}", roles, user=user, name=name)
        jobs.append(TraceJob(job, float(submit_at[number]), float(duration_s[number]), f"synthetic:{number + 1}"))
    return Workload(tuple(jobs), f"synthetic ({options.jobs} jobs, load {options.load:g}, seed {seed})")


def _day_cycle(even: np.ndarray, swing: float) -> np.ndarray:
    """Instants of a steady Poisson stream, moved so that their rate follows ``1 - swing * cos(time of day)``."""
    phase = 2 * math.pi / DAY_S
    moved = even.copy()
    for _ in range(60):  # halved steps, so that it converges for a swing of 1 too
        moved += 0.5 * (even - (moved - swing / phase * np.sin(phase * moved)))
    return np.sort(np.maximum(moved, 0.0))
