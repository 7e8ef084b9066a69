"""Which trials fall behind: successive halving without waiting for each other.

Source: Li et al., A System for Massively Parallel Hyperparameter Tuning (ASHA), MLSys 2020, section 3. There, a trial
that is among the best of its rung is promoted to the next; here, trials run on, and one that is not among the best when
it comes to a rung is stopped. Both keep 1 in ``factor`` at each rung, and neither waits for a rung to fill,
which on cards that come and go never happens.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from millpond.specs.job.sweeps import Halving, SweepMetric

_PARTS = {2: "half", 3: "third", 4: "quarter"}


def rungs_up_to(halving: Halving, step: float) -> Iterator[int]:
    """The rungs that a trial has come to after so many steps, the first first."""
    if halving.rungs is not None:
        yield from (rung for rung in halving.rungs if rung <= step)
        return
    rung = halving.first_step
    while rung <= step:
        yield rung
        rung *= halving.factor


def verdict(halving: Halving, metric: SweepMetric, rung: int, own: float | None, values: Sequence[float | None]) -> str:
    """Why a trial is to be stopped at a rung; empty when it goes on.

    Args:
        own: its value there; None: not finite, which is worse than anything.
        values: of all trials that came to the rung so far, its own among them.
    """
    losses = [_loss(metric, value) for value in values]
    kept = max(1, len(losses) // halving.factor)
    if sum(loss < _loss(metric, own) for loss in losses) < kept:
        return ""
    needed = sorted(losses)[kept - 1] * (1 if metric.goal == "minimize" else -1)
    part = _PARTS.get(halving.factor, f"1/{halving.factor}")
    shown = "not finite" if own is None else f"{own:.6g}"
    return f"behind the best {part} of {len(losses)} at step {rung}: {metric.name} {shown}, and {needed:.6g} was needed"


def _loss(metric: SweepMetric, value: float | None) -> float:
    """The smaller, the better."""
    if value is None:
        return math.inf
    return value if metric.goal == "minimize" else -value
