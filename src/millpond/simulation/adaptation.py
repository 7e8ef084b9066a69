"""Whether a server should go over to another policy, or back, by replays of its own last days. Pure: figures in, a
verdict with its reason out.

A candidate has to be better on three windows of days, each by itself; so one that only suits some days is not promoted.
What is compared is the mean slowdown of jobs: how much longer a job took, from its submission to its end, than it ran.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from millpond.model.policy_trials import ClusterPolicies
from millpond.simulation.results.metrics import bounded_slowdown

SHORTEST_REPLAYED_S: Final = 60.0
"""Jobs that ran for less count as that long in slowdowns."""
LEAST_JOBS: Final = 50
"""A window with fewer says nothing."""
WAIT_SLACK_S: Final = 60.0
"""The waits that 95 of 100 jobs do not exceed may grow by this, and by the part by which the mean slowdown falls."""


@dataclass(frozen=True, slots=True)
class WindowFigures:
    """What became of the jobs that were submitted in one window."""

    jobs: int
    slowdown: float
    p95_wait_s: float


@dataclass(frozen=True, slots=True)
class TriedPolicy:
    """A policy, and what its replay came to in each window, by time; empty where the replay took too long."""

    choice: ClusterPolicies
    windows: tuple[WindowFigures, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Which policy is to hold from now on, None for the present one, and why."""

    choice: ClusterPolicies | None
    why: str


def window_figures(jobs: Iterable[tuple[float, float, float]], window: tuple[float, float]) -> WindowFigures:
    """The figures of the jobs submitted in a window, the end excluded.

    Args:
        jobs: (submitted, ended, seconds that it runs undisturbed) of each.
    """
    begin, until = window
    found = np.array([job for job in jobs if begin <= job[0] < until], dtype=float).reshape(-1, 3)
    if not len(found):
        return WindowFigures(0, 1.0, 0.0)
    took = found[:, 1] - found[:, 0]
    slowdown = bounded_slowdown(took, found[:, 2], SHORTEST_REPLAYED_S)
    waited = np.maximum(took - found[:, 2], 0.0)
    return WindowFigures(len(found), float(slowdown.mean()), float(np.percentile(waited, 95)))


def windows_of(begin: float, until: float) -> tuple[tuple[float, float], ...]:
    """The windows in each of which a candidate has to be better."""
    third = (until - begin) / 3.0
    return tuple((begin + part * third, begin + (part + 1) * third) for part in range(3))


def is_quiet(present: WindowFigures, margin: float) -> bool:
    """Whether no policy can be better there: a mean slowdown that is lower by the margin would be below 1."""
    return present.slowdown * (1.0 - margin) < 1.0


def choose_policy(present: TriedPolicy, candidates: Sequence[TriedPolicy], margin: float) -> Verdict:
    """Of the candidates that are better than the present policy in each window the one that is best in the first.

    In a quiet window it must not be worse. Two have to be none; the first of these counts as the first.

    Args:
        margin: better means a mean slowdown that is lower by this part at least, and waits that grow by no greater
            part than it falls.
    """
    if not present.windows:
        return Verdict(None, "the replay of the present policy took too long")
    few = [str(window.jobs) for window in present.windows if window.jobs < LEAST_JOBS]
    if few:
        return Verdict(None, f"too few jobs to judge by: {', '.join(few)} in a window, {LEAST_JOBS} are needed")
    played = [candidate for candidate in candidates if candidate.windows]
    if not played:
        return Verdict(None, "the replays of all candidates took too long")
    busy = [number for number, window in enumerate(present.windows) if not is_quiet(window, margin)]
    if len(busy) < 2:
        slowdowns = ", ".join(f"{window.slowdown:.2f}" for window in present.windows)
        return Verdict(
            None, f"hardly anything waits, so nothing can be better by {margin:.0%}: mean slowdown {slowdowns}"
        )
    tried = sorted(played, key=lambda each: each.windows[busy[0]].slowdown)
    refused = [_why_not(present, each, margin) for each in tried]
    chosen = next((each for each, why in zip(tried, refused, strict=True) if not why), None)
    best = chosen or tried[0]
    numbers = f"{best.choice} instead of {present.choice}: {compared_text(present.windows, best.windows)}"
    return Verdict(None, f"{refused[0]}; {numbers}") if chosen is None else Verdict(chosen.choice, numbers)


def _why_not(present: TriedPolicy, candidate: TriedPolicy, margin: float) -> str:
    """Why a candidate is no better; empty where it is."""
    for number, (before, after) in enumerate(zip(present.windows, candidate.windows, strict=True), 1):
        if is_quiet(before, margin):
            if after.slowdown > before.slowdown * (1.0 + margin):
                return f"the best candidate is worse by {margin:.0%} in window {number}"
        elif after.slowdown > before.slowdown * (1.0 - margin):
            return f"no candidate is better by {margin:.0%} in window {number}"
        gain = max(1.0 - after.slowdown / before.slowdown, margin)
        if after.p95_wait_s > before.p95_wait_s * (1.0 + gain) + WAIT_SLACK_S:
            return f"the best candidate lets some wait longer by more than {gain:.0%} in window {number}"
    return ""


def is_worse(measured: WindowFigures, replayed: WindowFigures, optimism: float, margin: float) -> bool:
    """Whether days went worse than they would have under the policy of before.

    Args:
        measured: what happened.
        replayed: the same jobs, replayed under the policy of before.
        optimism: what was measured was so many times what replays say, before the change.
        margin: worse means a mean slowdown that is higher by this part.
    """
    return measured.slowdown > replayed.slowdown * optimism * (1.0 + margin)


def compared_text(before: Sequence[WindowFigures], after: Sequence[WindowFigures]) -> str:
    """Two policies in the same windows, in words."""
    slowdowns = ", ".join(f"{old.slowdown:.2f} -> {new.slowdown:.2f}" for old, new in zip(before, after, strict=True))
    waits = ", ".join(
        f"{old.p95_wait_s / 60:.0f} -> {new.p95_wait_s / 60:.0f}" for old, new in zip(before, after, strict=True)
    )
    return f"mean slowdown {slowdowns}; minutes that 95 % wait at most {waits}"
