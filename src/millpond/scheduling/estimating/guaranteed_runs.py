"""To which of those that run in a future a guarantee is owed: the second rule of ``tenancy.displacement``."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from millpond.scheduling.estimating.possible_jobs import Charges, HeldRoom
from millpond.scheduling.placement.arrays import BoolArray, Int64Array


class _GuaranteedRun(NamedTuple):
    """A run on one guarantee, in the order of who comes first: what stays, what took its place back, the highest class,
    the oldest place."""

    may_leave: bool
    took_none_back: bool
    of_class: float
    begun_s: float
    number: int
    charges: Charges


class _OwedRuns:
    """To whom a guarantee is owed, one after the other: whoever fits in it beside those before.

    Attributes:
        numbers: of these runs.
        left: by account, what they leave of the guarantee.
        has_refused: anybody does not fit.
    """

    __slots__ = ("has_refused", "left", "numbers")

    def __init__(self, numbers: set[int], left: dict[int, int], *, has_refused: bool) -> None:
        self.numbers = numbers
        self.left = left
        self.has_refused = has_refused

    @classmethod
    def of(cls, runs: Sequence[_GuaranteedRun], spare: Sequence[int]) -> _OwedRuns:
        """Of all runs on the guarantee, in order; ``spare``: how much each account may hold more."""
        left = dict[int, int]()
        for run in runs:
            for account, charge in run.charges:
                left[account] = left.get(account, spare[account]) + charge
        owed = cls(set(), left, has_refused=False)
        for run in runs:
            if run.charges and not owed._take(run):
                owed.has_refused = True
        return owed

    def copy(self) -> _OwedRuns:
        """The same, to go on by itself."""
        return _OwedRuns(self.numbers.copy(), self.left.copy(), has_refused=self.has_refused)

    def add(self, run: _GuaranteedRun, *, is_last: bool) -> bool:
        """A job has begun to run; whether it is known to whom the guarantee is owed now."""
        if any(account not in self.left for account, _ in run.charges):
            return False
        if not run.charges or ((is_last or not self.has_refused) and self._take(run)):
            return True
        self.has_refused = True
        return is_last

    def remove(self, run: _GuaranteedRun) -> bool:
        """It runs no longer; whether it is known to whom the guarantee is owed now."""
        if run.number not in self.numbers:
            return True
        self.numbers.remove(run.number)
        for account, charge in run.charges:
            self.left[account] += charge
        return not self.has_refused

    def _take(self, run: _GuaranteedRun) -> bool:
        left = self.left
        for account, charge in run.charges:
            if left[account] < charge:
                return False
        for account, charge in run.charges:
            left[account] -= charge
        self.numbers.add(run.number)
        return True


class GuaranteedRuns:
    """The runs that live on each guarantee, by the number of its queue."""

    def __init__(self) -> None:
        self._on: dict[int, list[_GuaranteedRun]] = {}
        self._owed: dict[int, _OwedRuns] = {}
        """Of the guarantees of which it is known."""
        self._times: Int64Array = np.zeros(256, dtype=np.int64)
        """By number of a run: how many of those guarantees are owed to it."""

    def fork(self) -> GuaranteedRuns:
        """A twin with which a future begins."""
        twin = GuaranteedRuns()
        twin._on = {guarantor: runs.copy() for guarantor, runs in self._on.items()}
        twin._owed = {guarantor: owed.copy() for guarantor, owed in self._owed.items()}
        twin._times = self._times.copy()
        return twin

    def add(self, number: int, run: HeldRoom) -> None:
        """A job has begun to run."""
        if number >= len(self._times):
            self._times = np.concatenate((self._times, np.zeros(number + 1, dtype=np.int64)))
        for guarantor, each in _each(number, run):
            runs, owed = self._on.setdefault(guarantor, []), self._owed.get(guarantor)
            insort(runs, each)
            if owed is not None:
                if not owed.add(each, is_last=runs[-1] is each):
                    self._forget(guarantor)
                elif number in owed.numbers:
                    self._times[number] += 1

    def remove(self, number: int, run: HeldRoom) -> None:
        """It runs no longer."""
        for guarantor, each in _each(number, run):
            runs, owed = self._on[guarantor], self._owed.get(guarantor)
            del runs[bisect_left(runs, each)]
            if owed is not None and not owed.remove(each):
                self._forget(guarantor)
        self._times[number] = 0

    def living_on(self, guarantor: int) -> list[int]:
        """The runs that live on a guarantee."""
        return [run.number for run in self._on.get(guarantor, ())]

    def find_owed(self, spare: Sequence[int]) -> None:
        """Find to whom guarantees are owed; ``spare``: how much each account may hold more."""
        if len(self._owed) == len(self._on):
            return
        for guarantor, runs in self._on.items():
            if guarantor not in self._owed:
                owed = self._owed[guarantor] = _OwedRuns.of(runs, spare)
                self._times[list(owed.numbers)] += 1

    def owed_beside(self, path: Collection[int], numbers: Int64Array, spare: Sequence[int]) -> BoolArray:
        """(runs,) to which guarantees are owed that are not among those of a job.

        Args:
            path: the numbers of the latter.
            numbers: (runs,) theirs.
            spare: how much each account may hold more.
        """
        self.find_owed(spare)
        times = self._times
        for guarantor in path:
            owed = self._owed.get(guarantor)
            if owed is not None and owed.numbers:
                times = times.copy() if times is self._times else times
                times[list(owed.numbers)] -= 1
        beside: BoolArray = times[numbers] > 0
        return beside

    def _forget(self, guarantor: int) -> None:
        self._times[list(self._owed.pop(guarantor).numbers)] -= 1


def _each(number: int, run: HeldRoom) -> Iterator[tuple[int, _GuaranteedRun]]:
    """A run on each guarantee on which it lives, with the number of its queue."""
    rank, _, _, candidate = run.entry
    for guarantor in run.counted.guarantors:
        first = candidate.may_leave, not run.took_back
        yield guarantor.number, _GuaranteedRun(*first, rank[1], run.begun_s, number, guarantor.charges)
