"""The guard: where nothing is preempted, long work leaves some room for the short work that is sure to come.

Without preemption a long job that fills the last cards makes every short one behind it wait for hours. From recent
arrivals the guard knows how many cards work of each length class keeps busy on average. A job whose length is known is
held back, for a small part of its own length at most, while starting it would leave fewer cards free than much shorter
work is expected to want beyond what it already has.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import Any

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

    def arrive(self, record: JobRecord, now: float) -> None:
        """A job was submitted; its length may become known a little later."""
        kept = 1.0 - FORGET
        if self._learns:
            self._demand = [weight * kept for weight in self._demand]
        self._span_s = self._span_s * kept + (now - self._last_at if self._last_at is not None else 0.0)
        self._last_at = now

    def learn(self, record: JobRecord) -> None:
        """The length of a submitted job became known for the first time."""
        if record.expected_s is not None:
            self._learns = True
            self._demand[_length_class(record.expected_s)] += record.gpu_milli * record.expected_s

    def start(self, record: JobRecord) -> None:
        """A job began to run."""
        if record.expected_s is not None:
            length = self._counted[record.id] = _length_class(record.expected_s)
            self._running_milli[length] += record.gpu_milli

    def leave(self, record: JobRecord) -> None:
        """Its run is over."""
        length = self._counted.pop(record.id, None)
        if length is not None:
            self._running_milli[length] -= record.gpu_milli

    def holds_back(self, record: JobRecord, free_milli: int, capacity_milli: int, now: float) -> bool:
        """Whether the job should leave the free room to shorter work for now."""
        length_s = record.expected_s
        if length_s is None or now - record.submitted_at >= LONGEST_DELAY * length_s:
            return False
        below = _length_class(length_s) - CLASS_GAP + 1
        if below <= 0:
            return False
        expected = EXPECTED_FACTOR * sum(self._demand[:below]) / max(self._span_s, 1.0)
        wanted = min(expected, MOST_ROOM * capacity_milli) - sum(self._running_milli[:below])
        return free_milli - record.gpu_milli < wanted

    def hold_back(self, record: JobRecord) -> None:
        """A job is held back; remember until when at most."""
        if record.expected_s is None:
            return
        until = record.submitted_at + LONGEST_DELAY * record.expected_s
        place = bisect_left(self._held_until, until)
        if place == len(self._held_until) or self._held_until[place] != until:
            self._held_until.insert(place, until)

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
        self._demand, self._span_s = list(plain["demand"]), plain["span_s"]
        self._learns = any(self._demand)
        self._last_at = plain["last_at"]
        self._running_milli, self._counted = list(plain["running_milli"]), dict(plain["counted"])
        self._held_until = list(plain.get("held_until", ()))  # not written at first


def _length_class(length_s: float) -> int:
    return min(max(int(math.log2(length_s + 1.0)), 0), _CLASSES - 1)
