"""How fast jobs are alone and beside which others on the same cards, and how much of their memory they take alone, as
measured; and what is expected of other pairs.

Jobs are told apart by user, name, model of card and number of cards. A speed beside another is a part of that alone. Of
a pair that nobody has seen, each job is expected to be as fast as it was beside others on average, and as others were
beside its partner; so long as there is little to go by, as fast as most jobs are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

PRIOR: Final = 0.65
"""The speed of a job in a pair of which nothing is known. Two jobs on one V100 make 1.31 together in Gavel's table."""
MOST_KEPT: Final = 1_000
"""Of so many kinds of jobs and pairs speeds are kept: those that were measured last."""

RUNS_KEPT: Final = 10
"""Of so many jobs of a kind the memory is kept: so what jobs of a name took once, and take no more, is forgotten."""

JobKind = tuple[str, str, str, int]
"""User, name, model of card, number of cards."""


class Average:
    """A mean that begins with one observation of ``PRIOR``."""

    __slots__ = ("count", "total")

    def __init__(self) -> None:
        self.total, self.count = PRIOR, 1

    def add(self, value: float) -> None:
        """One more observation."""
        self.total += value
        self.count += 1

    @property
    def value(self) -> float:
        """The mean."""
        return self.total / self.count


class PairExpectation:
    """What is expected of pairs, by what was known when it was made."""

    def __init__(self, measured: dict[tuple[JobKind, JobKind], tuple[float, float]]) -> None:
        self._measured = measured
        self._own: dict[JobKind, Average] = {}
        self._beside: dict[JobKind, Average] = {}
        for (one, other), (speed, others) in measured.items():
            self._note(one, other, speed)
            if one != other:
                self._note(other, one, others)

    def _note(self, kind: JobKind, beside: JobKind, speed: float) -> None:
        self._own.setdefault(kind, Average()).add(speed)
        self._beside.setdefault(beside, Average()).add(speed)

    def of(self, one: JobKind, other: JobKind) -> tuple[float, float]:
        """The speeds of two jobs side by side, as parts of those alone."""
        known = _known(self._measured, one, other)
        return known or (self._expected(one, other), self._expected(other, one))

    def _expected(self, kind: JobKind, beside: JobKind) -> float:
        own, others = self._own.get(kind), self._beside.get(beside)
        return ((PRIOR if own is None else own.value) + (PRIOR if others is None else others.value)) / 2


class PairSpeeds:
    """What was measured of jobs and of pairs."""

    def __init__(self) -> None:
        self._alone: dict[JobKind, float] = {}
        self._memory_mib: dict[JobKind, dict[str, int]] = {}  # the most by job
        self._pairs: dict[tuple[JobKind, JobKind], tuple[float, float]] = {}

    def alone(self, kind: JobKind) -> float:
        """Steps a second of such a job that has its cards for itself; 0 while that is not known."""
        return self._alone.get(kind, 0.0)

    def memory_mib(self, kind: JobKind) -> int | None:
        """The most memory that one of the last such jobs was seen to take of a card for itself; None: not known."""
        return max(self._memory_mib.get(kind, {}).values(), default=None)

    def beside(self, one: JobKind, other: JobKind) -> tuple[float, float] | None:
        """The speeds of two jobs side by side, as parts of those alone; None while they were not measured."""
        return _known(self._pairs, one, other)

    def expectation(self) -> PairExpectation:
        """What is expected of pairs now."""
        return PairExpectation(self._pairs)

    def note_alone(self, kind: JobKind, job: str, steps_per_s: float, memory_mib: int | None) -> None:
        """A job was measured that has its cards for itself."""
        _put(self._alone, kind, steps_per_s)
        if memory_mib is not None:
            by_job = dict(self._memory_mib.get(kind, {}))  # a fork has the other one
            _put(by_job, job, max(memory_mib, by_job.get(job, 0)), RUNS_KEPT)
            _put(self._memory_mib, kind, by_job)

    def note_pair(self, one: JobKind, other: JobKind, speeds: tuple[float, float]) -> None:
        """Two jobs were measured side by side, as parts of their speeds alone."""
        if other < one:
            one, other, speeds = other, one, speeds[::-1]
        if one == other:
            speeds = (min(speeds), max(speeds))
        _put(self._pairs, (one, other), speeds)

    def copy_from(self, other: PairSpeeds) -> None:
        """Know the same."""
        self._alone, self._pairs = dict(other._alone), dict(other._pairs)
        self._memory_mib = dict(other._memory_mib)

    def snapshot(self) -> dict[str, Any]:
        """As plain data, what was measured longest ago first."""
        alone = [[list(kind), per_s] for kind, per_s in self._alone.items()]
        return {
            "alone": alone,
            "memory_mib": [[list(kind), by_job] for kind, by_job in self._memory_mib.items()],
            "pairs": [[list(one), list(other), *speeds] for (one, other), speeds in self._pairs.items()],
        }

    def restore(self, plain: dict[str, Any]) -> None:
        """What ``snapshot`` wrote."""
        self._alone = {_kind(kind): per_s for kind, per_s in plain["alone"]}
        self._memory_mib = {_kind(kind): by_job for kind, by_job in plain["memory_mib"]}
        self._pairs = {(_kind(one), _kind(other)): (own, others) for one, other, own, others in plain["pairs"]}


def _known(
    measured: dict[tuple[JobKind, JobKind], tuple[float, float]], one: JobKind, other: JobKind
) -> tuple[float, float] | None:
    if one <= other:
        return measured.get((one, other))
    found = measured.get((other, one))
    return None if found is None else (found[1], found[0])


def _put(known: dict[Any, Any], key: object, value: object, most: int = MOST_KEPT) -> None:
    known.pop(key, None)
    known[key] = value
    if len(known) > most:
        del known[next(iter(known))]


def _kind(plain: Iterable[Any]) -> JobKind:
    user, name, model, cards = plain
    return user, name, model, cards
