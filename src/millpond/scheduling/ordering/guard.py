"""The guard: where nothing is preempted, long work leaves some room for the short work that is sure to come.

Without preemption a long job that fills the last cards makes every short one behind it wait for hours. From recent
arrivals the guard knows how many cards work of each length class keeps busy on average. A job whose length is known is
held back, for a small part of its own length at most, while starting it would leave fewer cards free than much shorter
work is expected to want beyond what it already has.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate
from typing import Any

import numpy as np

from millpond.scheduling.ordering.line_table import EXPECTED, LEAST_MILLI, SUBMITTED, LineTable
from millpond.scheduling.placement.arrays import BoolArray
from millpond.scheduling.records import JobRecord

EXPECTED_FACTOR = 2.5
"""Room is left for so many times the expected demand of much shorter work."""

CLASS_GAP = 2
"""Much shorter: by at least so many powers of two."""

LONGEST_DELAY = 0.15
"""No job is held back for more than this part of its own length."""

MOST_ROOM = 0.5
"""No more than this part of the cluster is kept free."""

FORGET = 1.0 / 256.0
"""Weight that every arrival takes from the memory of earlier ones."""

_CLASSES = 40


class ShortWorkGuard:
    """What arrives and what runs, by length class (powers of two of seconds)."""

    def __init__(self) -> None:
        self._demand = [0.0] * _CLASSES
        self._learns = False
        self._span_s = 0.0
        self._last_at: float | None = None
        self._running_milli = [0] * _CLASSES
        self._counted: dict[str, int] = {}
        self._held_until: list[float] = []
        self._kept_free: tuple[int, list[float]] | None = None
        """For a capacity, by length class; None where what arrives or runs has changed since."""

    def arrive(self, now: float) -> None:
        """A job was submitted; its length may become known a little later."""
        kept, self._kept_free = 1.0 - FORGET, None
        if self._learns:
            self._demand = [weight * kept for weight in self._demand]
        self._span_s = self._span_s * kept + (now - self._last_at if self._last_at is not None else 0.0)
        self._last_at = now

    def learn(self, record: JobRecord) -> None:
        """The length of a submitted job became known for the first time."""
        if record.expected_s is not None:
            self._learns, self._kept_free = True, None
            self._demand[length_class(record.expected_s)] += record.gpu_milli * record.expected_s

    def start(self, record: JobRecord) -> None:
        """A job began to run."""
        if record.expected_s is not None:
            length = self._counted[record.id] = length_class(record.expected_s)
            self._running_milli[length] += record.gpu_milli
            self._kept_free = None

    def leave(self, record: JobRecord) -> None:
        """Its run is over."""
        length = self._counted.pop(record.id, None)
        if length is not None:
            self._running_milli[length] -= record.gpu_milli
            self._kept_free = None

    def holds_back(self, record: JobRecord, free_milli: int, capacity_milli: int, now: float) -> bool:
        """Whether the job should leave the free room to shorter work for now."""
        length_s = record.expected_s
        if length_s is None or now - record.submitted_at >= LONGEST_DELAY * length_s:
            return False
        return free_milli - record.gpu_milli < self._wanted(capacity_milli)[length_class(length_s)]

    def hold_back(self, record: JobRecord) -> None:
        """A job is held back; remember until when at most."""
        if record.expected_s is None:
            return
        until = record.submitted_at + LONGEST_DELAY * record.expected_s
        place = bisect_left(self._held_until, until)
        if place == len(self._held_until) or self._held_until[place] != until:
            self._held_until.insert(place, until)

    def held_lines(self, table: LineTable, free_milli: int, capacity_milli: int, now: float) -> tuple[BoolArray, int]:
        """(lines,) which first of a waiting line should; and of which of them that ends first, -1 if there are none."""
        lengths, submitted = table.figure(EXPECTED), table.figure(SUBMITTED)
        held: BoolArray = now - submitted < LONGEST_DELAY * lengths
        held &= lengths < np.inf
        classes = np.minimum(np.frexp(np.where(held, lengths, 0.0) + 1.0)[1] - 1, _CLASSES - 1)
        wanted = np.array(self._wanted(capacity_milli))[classes]
        held &= free_milli - table.figure(LEAST_MILLI) < wanted
        ends = np.where(held, submitted + LONGEST_DELAY * lengths, np.inf)
        return held, int(ends.argmin()) if held.any() else -1

    def spared_milli(self, length_s: float, capacity_milli: int) -> float:
        """How many cards much shorter work than this is expected to keep busy, times the factor, within the bound."""
        return self._spared((sum(self._demand[: shorter_classes(length_class(length_s))]),), capacity_milli)[0]

    def _spared(self, demands: Iterable[float], capacity_milli: int) -> list[float]:
        """The same for all work of each demand."""
        span_s, most = max(self._span_s, 1.0), MOST_ROOM * capacity_milli
        return [min(EXPECTED_FACTOR * demand / span_s, most) for demand in demands]

    def _wanted(self, capacity_milli: int) -> list[float]:
        """By length class: how much is kept free of such work for much shorter work."""
        if self._kept_free is None or self._kept_free[0] != capacity_milli:
            spared = self._spared(accumulate(self._demand), capacity_milli)
            wanted = [part - running for part, running in zip(spared, accumulate(self._running_milli), strict=True)]
            self._kept_free = capacity_milli, [-math.inf] * CLASS_GAP + wanted[: _CLASSES - CLASS_GAP]
        return self._kept_free[1]

    @property
    def running_milli(self) -> list[int]:
        """(classes,) what runs, by class of length."""
        return list(self._running_milli)

    def next_release(self, now: float) -> float | None:
        """When the first job that was held back may be held back no longer; None when there is none."""
        while self._held_until and self._held_until[0] <= now:
            del self._held_until[0]
        return self._held_until[0] if self._held_until else None

    def snapshot(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "demand": self._demand,
            "span_s": self._span_s,
            "last_at": self._last_at,
            "running_milli": self._running_milli,
            "counted": self._counted,
            "held_until": self._held_until,
        }

    def restore(self, plain: dict[str, Any]) -> None:
        """Take over what ``snapshot`` returned."""
        self._kept_free = None
        self._demand, self._span_s = list(plain["demand"]), plain["span_s"]
        self._learns = any(self._demand)
        self._last_at = plain["last_at"]
        self._running_milli, self._counted = list(plain["running_milli"]), dict(plain["counted"])
        self._held_until = list(plain["held_until"])


def shorter_classes(length: int) -> int:
    """How many classes are much shorter than this one."""
    return max(length - CLASS_GAP + 1, 0)


def length_class(length_s: float) -> int:
    """The class of a length: its power of two in seconds."""
    return min(math.frexp(length_s + 1.0)[1] - 1, _CLASSES - 1)
