"""What power caps were measured to cost and to save, by user, queue, name, and model, number and greatest cap of cards.

The range of a card is divided into ``STEPS`` steps below its greatest cap. At most ``MOST_TRIED`` of them are tried,
each in the middle between the lowest cap that is known to be fast enough and the highest that is too slow.

Source: You et al., "Zeus", NSDI 2023: the cap of a recurring job is found by measuring time and energy while it runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

STEPS: Final = 8
MOST_TRIED: Final = 4
LEAST_SAVED: Final = 0.01
"""A cap has to save that part of the energy of a step."""
LIKE_BEFORE: Final = 0.25
"""Jobs whose steps take longer, or less long, than before by more than this part are others, and learnt anew."""
KEPT_S: Final = 14 * 86_400.0
"""So long after the first measurement all of it is forgotten, and learnt anew."""
MOST_KEPT: Final = 1_000
"""Of so many kinds of jobs caps are known: those that were measured last."""

CapKind = tuple[str, str, str, str, int, float]
"""User, queue, name; model and number of cards, and their greatest cap in watts."""


@dataclass(frozen=True, slots=True)
class TriedCap:
    """What was measured at a step, against no cap.

    Attributes:
        slowdown: by which part a step takes longer.
        saved: by which part it needs less energy.
    """

    step: int
    slowdown: float
    saved: float


@dataclass(frozen=True, slots=True)
class KnownCaps:
    """What is known of one kind of jobs.

    Attributes:
        first_job: the one that was measured first; caps are tried once another one runs.
        since: when that was.
        steps_per_s, energy_j: speed, and energy of a step, without a cap.
        tried: by step, ascending.
    """

    first_job: str
    since: float
    steps_per_s: float
    energy_j: float
    tried: tuple[TriedCap, ...] = ()

    def at(self, step: int) -> TriedCap | None:
        """What was measured at a step; None where nothing was."""
        return next((each for each in self.tried if each.step == step), None)

    def best(self, max_slowdown: float) -> TriedCap:
        """The step that saves most of those which are fast enough; step 0 where none is worth it."""
        fast = [each for each in self.tried if each.slowdown <= max_slowdown and each.saved >= LEAST_SAVED]
        return max(fast, key=_saved, default=TriedCap(0, 0.0, 0.0))

    def untried(self, max_slowdown: float) -> int:
        """The step to try next; 0 for none."""
        lowest = max((each.step for each in self.tried if each.slowdown <= max_slowdown), default=0)
        too_low = min((each.step for each in self.tried if each.slowdown > max_slowdown), default=STEPS + 1)
        if too_low - lowest < 2 or len(self.tried) >= MOST_TRIED:
            return 0
        return (lowest + too_low) // 2

    def compared(self, step: int, steps_per_s: float, energy_j: float) -> TriedCap:
        """What was measured at a step, against no cap."""
        return TriedCap(step, self.steps_per_s / steps_per_s - 1.0, 1.0 - energy_j / self.energy_j)

    def is_like_before(self, measured: TriedCap) -> bool:
        """Whether what was measured without a cap, or at one that was tried before, may be of the same program."""
        before = self.at(measured.step)
        if measured.step and before is None:
            return True
        return abs(measured.slowdown - (0.0 if before is None else before.slowdown)) <= LIKE_BEFORE


def with_tried(known: KnownCaps, measured: TriedCap) -> KnownCaps:
    """The same with what was measured last at a step."""
    others = [each for each in known.tried if each.step != measured.step]
    tried = tuple(sorted([*others, measured], key=_step))
    return KnownCaps(known.first_job, known.since, known.steps_per_s, known.energy_j, tried)


def _saved(tried: TriedCap) -> float:
    return tried.saved


def _step(tried: TriedCap) -> int:
    return tried.step


class CapTable:
    """What is known of all kinds of jobs."""

    def __init__(self) -> None:
        self._by_kind: dict[CapKind, KnownCaps] = {}

    def of(self, kind: CapKind, now: float) -> KnownCaps | None:
        """What is known of a kind; None where nothing is, or it is too old."""
        known = self._by_kind.get(kind)
        return None if known is None or now - known.since > KEPT_S else known

    def put(self, kind: CapKind, known: KnownCaps) -> None:
        """Know that of a kind."""
        self._by_kind.pop(kind, None)
        self._by_kind[kind] = known
        if len(self._by_kind) > MOST_KEPT:
            del self._by_kind[next(iter(self._by_kind))]

    def copy_from(self, other: CapTable) -> None:
        """Know the same."""
        self._by_kind = dict(other._by_kind)

    def snapshot(self) -> list[Any]:
        """As plain data, what was measured longest ago first."""
        return [
            [
                list(kind),
                [known.first_job, known.since, known.steps_per_s, known.energy_j],
                [[each.step, each.slowdown, each.saved] for each in known.tried],
            ]
            for kind, known in self._by_kind.items()
        ]

    def restore(self, plain: Iterable[Any]) -> None:
        """What ``snapshot`` wrote."""
        self._by_kind = {
            kind_of_plain(kind): KnownCaps(job, since, per_s, energy_j, tuple(TriedCap(*each) for each in tried))
            for kind, (job, since, per_s, energy_j), tried in plain
        }


def kind_of_plain(plain: Iterable[Any]) -> CapKind:
    """A kind of jobs from plain data."""
    user, queue, name, model, cards, most_w = (*plain, 0.0)[:6]  # states of before had no greatest cap
    return user, queue, name, model, cards, most_w
