"""How long a job will run, learnt from those that ended before it.

Users repeat their jobs: the best guess for a job is what the same user's jobs of the same name took lately
(Hu et al., SC'21, "QSSF"). Where that history is short, the guess leans on the user's other jobs, then on jobs of
that queue and size, then on all. Everything is kept as the logarithm of seconds, because errors there are factors.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass
from typing import Protocol

WINDOW = 64
SHRINKAGE = 2.0
CAUTION = 0.9

_VARYING = re.compile(r"[0-9a-f]{7,}|\d+")


class Described(Protocol):
    """What a guess rests on: a job's own description, or what is kept of it after its end."""

    @property
    def name(self) -> str: ...
    @property
    def user(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def gpu_milli(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Forecast:
    """A guess at a job's run: its median and a length that nine in ten do not exceed, in seconds."""

    expected_s: float
    cautious_s: float


class DurationPredictor:
    """Learns online: ``predict`` at submission, ``observe`` at the end.

    Args:
        window: how many of the latest runs each history keeps.
        shrinkage: a history of n runs weighs n against this much for the wider one.
    """

    def __init__(self, window: int = WINDOW, shrinkage: float = SHRINKAGE) -> None:
        self._window = window
        self._shrinkage = shrinkage
        self._histories: dict[tuple[str, ...], _History] = {}

    def predict(self, job: Described) -> Forecast | None:
        """A forecast from the jobs that ended so far; None until the first has ended."""
        median = upper = 0.0
        known = False
        for key in _keys(job):
            history = self._histories.get(key)
            if history is None:
                continue
            count = len(history.ordered)
            weight = count / (count + self._shrinkage) if known else 1.0
            median += weight * (history.quantile(0.5) - median)
            upper += weight * (history.quantile(CAUTION) - upper)
            known = True
        return Forecast(math.exp(median), math.exp(max(median, upper))) if known else None

    def runs_by_name(self, job: Described) -> int:
        """How many ended runs of this user's jobs of this queue and name a guess rests on; 0 without a name."""
        history = self._histories.get(_keys(job)[-1]) if job.name else None
        return 0 if history is None else len(history.ordered)

    def observe(self, job: Described, duration_s: float) -> None:
        """Learn that ``job`` ran for this long."""
        value = math.log(max(duration_s, 1.0))
        for key in _keys(job):
            history = self._histories.get(key)
            if history is None:
                history = self._histories[key] = _History()
            history.add(value, self._window)


class _History:
    """The latest values in order of time and in order of size."""

    __slots__ = ("latest", "ordered")

    def __init__(self) -> None:
        self.latest: deque[float] = deque()
        self.ordered: list[float] = []

    def add(self, value: float, window: int) -> None:
        self.latest.append(value)
        insort(self.ordered, value)
        if len(self.latest) > window:
            oldest = self.latest.popleft()
            del self.ordered[bisect_left(self.ordered, oldest)]

    def quantile(self, part: float) -> float:
        """The quantile by linear interpolation between order statistics."""
        position = part * (len(self.ordered) - 1)
        low = int(position)
        high = min(low + 1, len(self.ordered) - 1)
        return self.ordered[low] + (position - low) * (self.ordered[high] - self.ordered[low])


def _keys(job: Described) -> list[tuple[str, ...]]:
    """Histories that a job belongs to, the widest first. Digits and hashes in names count as noise."""
    keys: list[tuple[str, ...]] = [("all",), ("size", job.queue, str(job.gpu_milli))]
    if job.user:
        keys.append(("user", job.queue, job.user))
    if job.name:
        keys.append(("name", job.queue, job.user, _VARYING.sub("#", job.name)))
    return keys
