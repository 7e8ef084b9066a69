"""One possible future of a pool, played fast: who ends, who comes and who starts, until one job has started.

The rules are those of the admission cycle, as far as they decide who waits: the order, strict or not; limits of queues
and users; the reservation of the first job that finds no room; room that the ordering leaves to short work. Left out is
what a pool of nodes with one resource cannot show. Nothing runs faster or slower, fails, or leaves for others.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from millpond.scheduling.explaining.lengths import Length
from millpond.scheduling.explaining.rooms import Part, Rooms, Taken
from millpond.scheduling.ordering.base import NEVER
from millpond.scheduling.ordering.guard import shorter_classes

SLOWEST_PACE = 0.25
"""Where a future is cut off, the job is taken to start within the time so far over this, at the latest."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What alike jobs ask for.

    Attributes:
        parts: their tasks, the largest first.
        total: the amount of all tasks.
        charges: (account, amount) of every limit that they count against.
    """

    parts: tuple[Part, ...]
    total: int
    charges: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A job that waits or comes.

    Attributes:
        line: jobs of one line are alike: where the first finds no room, none does.
        rank: its place in the order as it is now, the lower the earlier.
        cautious_s: how long it runs at most, as the scheduler expects.
        stays_s: for how long it needs a node that is to close, see ``nodes.cordon``.
        length_class, spared: of its length, -1 for unknown; it leaves so much free for much shorter classes,
        patience_s: but for no longer than this after its submission.
    """

    line: int
    demand: Demand
    rank: tuple[float, ...]
    length: Length
    cautious_s: float
    stays_s: float = 0.0
    length_class: int = -1
    spared: float = 0.0
    patience_s: float = 0.0


Entry = tuple[tuple[float, ...], int, float, Candidate]
"""Rank, sequence, when it was submitted (seconds from now), and who: in the order of the line."""


@dataclass(frozen=True, slots=True)
class HeldRoom:
    """A job that holds room now.

    Attributes:
        expected_s: when it ends, as the scheduler expects.
    """

    taken: Taken
    charges: tuple[tuple[int, int], ...]
    expected_s: float
    length_class: int = -1


@dataclass(frozen=True, slots=True)
class PoolModel:
    """Where all futures of one question begin.

    Attributes:
        free, kinds, unit: see ``rooms.Rooms``.
        waiting: in order.
        target: the job that is asked about, one of them.
        spare: how much each account may hold beyond what it does.
        flips: (seconds from now, node, amount): nodes that open and, with an amount below 0, close.
        strict, reserves: whether a blocked job blocks all behind it, and whether room is kept for the first.
        short_work: the amount that runs, by class of length.
        fits_now: whether the target may start before anything has happened.
    """

    free: list[int]
    kinds: list[int]
    unit: int
    running: list[HeldRoom]
    waiting: list[Entry]
    target: Entry
    spare: list[int]
    flips: list[tuple[float, int, int]]
    strict: bool
    reserves: bool
    short_work: list[int]
    fits_now: bool


class Future:
    """A future of a pool.

    Args:
        ends: when each running job ends, seconds from now.
        arrivals: who comes when, without end or in order of time.
        draws: normally distributed numbers, by which jobs that start get their lengths.
        stretch: by what every unsure length is multiplied.
    """

    def __init__(
        self,
        model: PoolModel,
        ends: Sequence[float],
        arrivals: Iterator[tuple[float, Candidate]],
        draws: Iterator[float],
        stretch: float,
    ) -> None:
        self._model = model
        self._rooms = Rooms(model.free, model.kinds, model.unit)
        self._free = sum(amount for amount in model.free if amount > 0)
        self._spare = list(model.spare)
        self._short_work = list(model.short_work)
        self._arrivals, self._draws, self._stretch = arrivals, draws, stretch
        self._ends = [(end, number, run) for number, (end, run) in enumerate(zip(ends, model.running, strict=True))]
        self._ends = [entry for entry in self._ends if entry[0] < NEVER]
        heapq.heapify(self._ends)
        self._number = len(model.running)
        self._lines: dict[int, list[Entry]] = {}
        for entry in model.waiting:
            self._lines.setdefault(entry[3].line, []).append(entry)
        self._sequence = max(entry[1] for entry in model.waiting) + 1
        self._count = len(model.waiting)
        self._ahead = self._ahead_at_first = sum(entry < model.target for entry in model.waiting) + 1
        self._holds: list[float] = []
        self._head: Entry | None = None
        self._kept: set[int] = set()
        self._kept_until = 0.0
        self.now = 0.0
        self.steps = 0

    def start_s(self, most_steps: int) -> float:
        """Seconds until the target starts; infinite if nothing more happens before.

        After so many steps those still ahead are taken to go on at the pace so far.
        """
        if self._model.fits_now and self._walk():
            return 0.0
        flips = iter((*self._model.flips, (NEVER, 0, 0)))
        flip, coming = next(flips), next(self._arrivals, None)
        while self.steps < most_steps:
            at = min(
                self._ends[0][0] if self._ends else NEVER,
                coming[0] if coming else NEVER,
                flip[0],
                self._holds[0] if self._holds else NEVER,
            )
            if at == NEVER:
                return NEVER
            self.now = at
            released = self._end_runs()
            while self._holds and self._holds[0] <= at:
                heapq.heappop(self._holds)
                released = True
            while flip[0] <= at:
                self._rooms.change(flip[1], flip[2])
                flip, released = next(flips), True
            came: list[Entry] = []
            while coming and coming[0] <= at:
                came.append(self._come(*coming))
                coming = next(self._arrivals, None)
            if released and self._walk():
                return at
            if not released:
                for entry in came:
                    self._try_alone(entry)
        return self._at_this_pace()

    def _at_this_pace(self) -> float:
        moved = 1.0 - self._ahead / self._ahead_at_first
        return self.now / max(moved, SLOWEST_PACE)

    # ---- what happens by itself ---------------------------------------------------------------------------------

    def _end_runs(self) -> bool:
        """End the runs that are due; whether there was one."""
        ends, due = self._ends, False
        while ends and ends[0][0] <= self.now:
            run = heapq.heappop(ends)[2]
            self._rooms.give(run.taken)
            self._book(run, 1)
            self.steps += 1
            due = True
        return due

    def _book(self, run: HeldRoom, sign: int) -> None:
        amount = sign * sum(taken for _, taken in run.taken)
        self._free += amount
        if run.length_class >= 0:
            self._short_work[run.length_class] -= amount
        for account, charge in run.charges:
            self._spare[account] += sign * charge

    def _come(self, at: float, candidate: Candidate) -> Entry:
        entry = (candidate.rank, self._sequence, at, candidate)
        self._sequence += 1
        heapq.heappush(self._lines.setdefault(candidate.line, []), entry)
        self._count += 1
        self._ahead += entry < self._model.target
        self.steps += 1
        return entry

    # ---- who starts ---------------------------------------------------------------------------------------------

    def _try_alone(self, entry: Entry) -> None:
        """Start a newcomer if it has room: those who wait have not found any before."""
        line = self._lines[entry[3].line]
        if line[0] is not entry or (self._model.strict and self._count > 1) or not self._is_admitted(entry[3]):
            return
        taken = self._rooms.take(entry[3].demand.parts, self._avoided(entry))
        if taken is None:
            return
        if self._is_held_back(entry):
            self._rooms.give(taken)
        else:
            heapq.heappop(line)
            self._begin(entry, taken)

    def _walk(self) -> bool:
        """Start what has room, in order; whether the target was among it."""
        lines, rooms, model = self._lines, self._rooms, self._model
        heads = [line[0] for line in lines.values() if line]
        heapq.heapify(heads)
        passed: list[Entry] = []
        blocked = found = False
        while heads and not found:
            entry = heapq.heappop(heads)
            candidate = entry[3]
            line = lines[candidate.line]
            self.steps += 1
            if not self._is_admitted(candidate):
                continue
            taken = rooms.take(candidate.demand.parts, self._avoided(entry))
            if taken is None:
                if model.strict:
                    break
                if not blocked and model.reserves:
                    self._reserve(entry)
                blocked = True
                continue
            heapq.heappop(line)
            if self._is_held_back(entry):
                rooms.give(taken)
                passed.append(entry)
            elif entry is model.target:
                found = True
            else:
                self._begin(entry, taken)
            if line:
                heapq.heappush(heads, line[0])
        for entry in passed:
            heapq.heappush(lines[entry[3].line], entry)
        return found

    def _is_admitted(self, candidate: Candidate) -> bool:
        return all(self._spare[account] >= charge for account, charge in candidate.demand.charges)

    def _begin(self, entry: Entry, taken: Taken) -> None:
        candidate = entry[3]
        self._count -= 1
        self._ahead -= entry < self._model.target
        if entry is self._head:
            self._head, self._kept = None, set()
        run = HeldRoom(taken, candidate.demand.charges, self.now + candidate.cautious_s, candidate.length_class)
        self._book(run, -1)
        end = self.now + candidate.length.drawn_s(next(self._draws), self._stretch)
        if end < NEVER:
            heapq.heappush(self._ends, (end, self._number, run))
        self._number += 1

    def _is_held_back(self, entry: Entry) -> bool:
        """Whether a job, placed just now, should leave its room to much shorter work."""
        candidate = entry[3]
        until = entry[2] + candidate.patience_s
        if until <= self.now:
            return False
        shorter = self._short_work[: shorter_classes(candidate.length_class)]
        if self._free - candidate.demand.total >= candidate.spared - sum(shorter):
            return False
        heapq.heappush(self._holds, until)
        return True

    def _reserve(self, entry: Entry) -> None:
        """Keep for the first job without room the nodes that should have it first."""
        if self._head is entry and self._kept_until > self.now:
            return
        ends = sorted((max(run.expected_s, self.now), number) for _, number, run in self._ends)
        runs = {number: run for _, number, run in self._ends}
        self.steps += len(ends) // 4
        found = self._rooms.nodes_of(entry[3].demand.parts, [(at, runs[number].taken) for at, number in ends])
        self._head = entry
        self._kept_until, self._kept = found or (0.0, set())

    def _avoided(self, entry: Entry) -> Collection[int]:
        """The nodes that are kept from a job for the one ahead of it, or that close too soon for it."""
        now, candidate = self.now, entry[3]
        bound = self._head is not None and entry > self._head and now + candidate.cautious_s > self._kept_until
        kept: Collection[int] = self._kept if bound else ()
        if not self._model.flips:
            return kept
        stays = now + candidate.stays_s
        return {*kept, *(node for at, node, amount in self._model.flips if amount < 0 and now < at < stays)}
