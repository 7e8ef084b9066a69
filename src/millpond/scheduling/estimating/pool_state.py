"""A pool as its futures begin: who runs, who waits, what is free, and by which rules the rest follows."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from millpond.scheduling.estimating.displacer import Displacer
from millpond.scheduling.estimating.limit_accounts import ReservedCharges
from millpond.scheduling.estimating.possible_jobs import HeldRoom, InLine
from millpond.scheduling.estimating.wait_bounds import WaitBounds
from millpond.scheduling.ordering.forecasts import NEVER


@dataclass(frozen=True, slots=True)
class FirstRuns:
    """Who runs when a future begins, and when they end in it: common to all line-ups of a pool.

    Attributes:
        held: of the resource, in all.
        runs, end_of: by number; the latter in seconds from now.
        ends, expected: (seconds from now, number) of those that end; a heap, and in order of what is expected.
        last_sequence: nobody who runs came later.
    """

    held: int
    runs: dict[int, HeldRoom]
    end_of: dict[int, float]
    ends: list[tuple[float, int]]
    expected: list[tuple[float, int]]
    last_sequence: int

    @classmethod
    def of_futures(cls, running: Sequence[HeldRoom], ends_of_futures: Iterable[Sequence[float]]) -> list[Self]:
        """For running jobs, and the instants at which they end in each future."""
        held = sum(run.amount for run in running)
        runs = dict(enumerate(running))
        expected = sorted((run.expected_s, number) for number, run in runs.items())
        last_sequence = max((run.entry.sequence for run in running), default=0)
        futures: list[Self] = []
        for ends in ends_of_futures:
            dated = [(end, number) for number, end in enumerate(ends) if end < NEVER]
            heapq.heapify(dated)
            of_dated = [each for each in expected if ends[each[1]] < NEVER]
            futures.append(cls(held, runs, dict(enumerate(ends)), dated, of_dated, last_sequence))
        return futures


@dataclass(frozen=True, slots=True)
class FirstWaiting:
    """Who waits when a future begins: common to all futures of a line-up.

    Attributes:
        entries: in order,
        by_sequence, lines: the same; of each line in order.
        of_group: how many wait of each group.
    """

    entries: Sequence[InLine]
    by_sequence: dict[int, InLine]
    lines: dict[int, list[InLine]]
    of_group: Counter[int]

    @classmethod
    def of(cls, entries: Sequence[InLine]) -> Self:
        """For those who wait, in order."""
        lines: dict[int, list[InLine]] = {}
        for entry in entries:
            lines.setdefault(entry.candidate.line, []).append(entry)
        return cls(
            entries,
            {entry.sequence: entry for entry in entries},
            lines,
            Counter(entry.candidate.group for entry in entries),
        )


@dataclass(frozen=True, slots=True)
class PoolModel:
    """Where all futures of one line-up begin.

    Attributes:
        free, unit: see ``rooms.Rooms``.
        spare: how much each account may hold beyond what it does.
        reserved: what advance reservations hold of the accounts.
        flips: (seconds from now, node, amount): nodes of which so much opens and, with an amount below 0, closes.
        strict, reserves: whether a blocked job blocks all behind it, and whether room is kept for the first.
        bounds: None where no job ever is overdue.
        displacer: of those who run; None where nobody leaves for others.
        has_guarantees: any queue is guaranteed anything.
        short_work: the amount that runs, by class of length.
        fits_now: whether there may be room before anything has happened.
    """

    free: list[int]
    unit: int
    waiting: FirstWaiting
    spare: list[int]
    reserved: list[ReservedCharges]
    flips: list[tuple[float, int, int]]
    strict: bool
    reserves: bool
    bounds: WaitBounds | None
    displacer: Displacer | None
    has_guarantees: bool
    short_work: list[int]
    fits_now: bool
