"""One possible future of a pool, played fast: who ends, who comes and who starts, until one job has started.

The rules are those of the admission cycle, as far as they decide who waits: the order, strict or not; limits of queues
and users; the reservation of the first job that finds no room; room that the ordering leaves to short work; jobs that
become overdue; running work that leaves for a higher class or by the ordering. Left out is what a pool of nodes with
one resource cannot show. Nothing runs faster or slower, or fails.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import merge
from itertools import islice

from millpond.scheduling.estimating.displacer import Displacer, Leaving, Preemption
from millpond.scheduling.estimating.lengths import Length
from millpond.scheduling.estimating.possible_jobs import Candidate, Entry, HeldRoom
from millpond.scheduling.estimating.rooms import Rooms, Taken
from millpond.scheduling.estimating.wait_bounds import WaitBounds
from millpond.scheduling.ordering.forecasts import NEVER
from millpond.scheduling.ordering.guard import shorter_classes

SLOWEST_PACE = 0.25
"""Where a future is cut off, the job is taken to start within the time so far over this, at the latest."""

MORE_OF_RUN = 0.5
"""A job that has outlived what was expected of it is expected to go on for this part of its run so far."""


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
        bounds: None where no job ever is overdue.
        preemption: None where nobody leaves for others.
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
    bounds: WaitBounds | None
    preemption: Preemption | None
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
        self._target = model.target
        self._rooms = Rooms(model.free, model.kinds, model.unit)
        self._free = sum(amount for amount in model.free if amount > 0)
        self._held = sum(amount for run in model.running for _, amount in run.taken)
        self._spare = list(model.spare)
        self._short_work = list(model.short_work)
        self._arrivals, self._draws, self._stretch = arrivals, draws, stretch
        self._runs: dict[int, HeldRoom] = {}
        self._end_of: dict[int, float] = {}
        self._ends: list[tuple[float, int]] = []
        self._expected: list[tuple[float, int]] = []
        self._displacer = model.preemption and Displacer(model.preemption, self._rooms, model.kinds)
        self._number = 0
        for end, run in zip(ends, model.running, strict=True):
            self._run(run, end)
        self._lines: dict[int, list[Entry]] = {}
        for entry in model.waiting:
            self._lines.setdefault(entry[3].line, []).append(entry)
        self._waiting = {entry[1]: entry for entry in model.waiting}
        self._bounds = model.bounds and model.bounds.fork()
        self._sequence = max(entry[1] for entry in (*model.waiting, *(run.entry for run in model.running))) + 1
        self._ahead = self._ahead_at_first = sum(entry < model.target for entry in model.waiting) + 1
        self._holds: list[float] = []
        self._left: list[Entry] = []
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
            if self._bounds:
                released |= self._promote(self._bounds)
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
            end, number = heapq.heappop(ends)
            if self._end_of.get(number) == end:
                self._stop(number)
                self.steps += 1
                due = True
        return due

    def _run(self, run: HeldRoom, end_s: float) -> None:
        """A job runs from now on."""
        number = self._number
        self._number += 1
        self._runs[number], self._end_of[number] = run, end_s
        if end_s < NEVER:
            heapq.heappush(self._ends, (end_s, number))
            insort(self._expected, (run.expected_s, number))
        if self._displacer:
            self._displacer.add(number, run)

    def _stop(self, number: int) -> HeldRoom:
        run = self._runs.pop(number)
        if self._end_of.pop(number) < NEVER:
            del self._expected[bisect_left(self._expected, (run.expected_s, number))]
        if self._displacer:
            self._displacer.remove(number)
        self._rooms.give(run.taken)
        self._book(run, 1)
        return run

    def _book(self, run: HeldRoom, sign: int) -> None:
        candidate = run.entry[3]
        amount = sign * sum(taken for _, taken in run.taken)
        self._free += amount
        self._held -= amount
        if candidate.length_class >= 0:
            self._short_work[candidate.length_class] -= amount
        for account, charge in candidate.demand.charges:
            self._spare[account] += sign * charge

    def _promote(self, bounds: WaitBounds) -> bool:
        """Let those go first from now on that have become overdue; whether there was one.

        As in a cycle, running work is read for one of them alone.
        """
        found = False
        for entry in bounds.due(self.now):
            if self._waiting.get(entry[1]) is not entry:
                continue
            is_overdue = bounds.is_overdue(entry, self.now)
            if is_overdue is None:
                room = self._room_expected(entry)
                bounds.promise(entry, None if room is None else max(room[0], self.now), self.now)
                break
            if is_overdue:
                self._go_first(entry, bounds)
                found = True
        return found

    def _go_first(self, entry: Entry, bounds: WaitBounds) -> None:
        is_target, was_ahead = entry is self._target, entry < self._target
        rank = (*entry[0][:-1], bounds.first(entry))
        candidate = replace(entry[3], rank=rank, patience_s=0.0, overdue=True)
        bounds.add(entry, -1)
        first = self._waiting[entry[1]] = (rank, entry[1], entry[2], candidate)
        heapq.heappush(self._lines[candidate.line], first)
        self.steps += 1
        if is_target:
            self._target = first
            self._ahead = sum(other < first for other in self._waiting.values()) + 1
        elif not was_ahead:
            self._ahead += first < self._target

    def _come(self, at: float, candidate: Candidate) -> Entry:
        entry = (candidate.rank, self._sequence, at, candidate)
        self._sequence += 1
        self._wait(entry)
        self.steps += 1
        return entry

    def _wait(self, entry: Entry) -> None:
        heapq.heappush(self._lines.setdefault(entry[3].line, []), entry)
        self._waiting[entry[1]] = entry
        self._ahead += entry < self._target
        if self._bounds:
            self._bounds.add(entry, 1)
            if entry[3].group < 0:
                self._bounds.watch(entry, self.now)

    # ---- who starts ---------------------------------------------------------------------------------------------

    def _try_alone(self, entry: Entry) -> None:
        """Start a newcomer if it has room: those who wait have not found any before."""
        candidate = entry[3]
        line = self._lines[candidate.line]
        if self._first(line) is not entry or (self._model.strict and len(self._waiting) > 1):
            return
        if candidate.strict and sum(each[3].group == candidate.group for each in self._waiting.values()) > 1:
            return
        if not self._is_admitted(candidate):
            return
        avoided = self._avoided(entry)
        taken = self._rooms.take(candidate.demand.parts, avoided) or self._make_room(entry, avoided)
        if taken is None:
            return
        if self._is_held_back(entry):
            self._rooms.give(taken)
        else:
            heapq.heappop(line)
            self._begin(entry, taken)
        self._requeue_left()

    def _walk(self) -> bool:
        """Start what has room, in order; whether the target was among it."""
        lines, rooms, model = self._lines, self._rooms, self._model
        heads = [entry for line in lines.values() if (entry := self._first(line))]
        heapq.heapify(heads)
        passed: list[Entry] = []
        blocked = found = False
        closed = set[int]()
        while heads and not found:
            entry = heapq.heappop(heads)
            candidate = entry[3]
            line = lines[candidate.line]
            self.steps += 1
            if candidate.group in closed or not self._is_admitted(candidate):
                continue
            avoided = self._avoided(entry)
            taken = rooms.take(candidate.demand.parts, avoided) or self._make_room(entry, avoided)
            if taken is None:
                if model.strict:
                    break
                if not blocked and (model.reserves or candidate.overdue):
                    self._reserve(entry)
                blocked = True
                if candidate.strict:
                    closed.add(candidate.group)
                continue
            heapq.heappop(line)
            if self._is_held_back(entry):
                rooms.give(taken)
                passed.append(entry)
            elif entry is self._target:
                found = True
            else:
                self._begin(entry, taken)
            if following := self._first(line):
                heapq.heappush(heads, following)
        for entry in passed:
            heapq.heappush(lines[entry[3].line], entry)
        self._requeue_left()
        return found

    def _first(self, line: list[Entry]) -> Entry | None:
        """The first of a line, of which those drop out that have another place by now."""
        while line and self._waiting.get(line[0][1]) is not line[0]:
            heapq.heappop(line)
        return line[0] if line else None

    def _is_admitted(self, candidate: Candidate) -> bool:
        return all(self._spare[account] >= charge for account, charge in candidate.demand.charges)

    def _make_room(self, entry: Entry, avoided: Collection[int]) -> Taken | None:
        """Let running work leave for a job, if that gives it a place: those wait again."""
        displacer = self._displacer
        if not displacer:
            return None
        displacer.earn(self._held, self.now)
        steps = displacer.steps
        leaving = displacer.leaving_for(entry[3], avoided, self.now)
        self.steps += displacer.steps - steps
        for each in leaving:
            left_s = max(self._end_of[each.number] - self.now, 0.0)
            self._left.append(self._after_leaving(self._stop(each.number), left_s, each))
        return self._rooms.take(entry[3].demand.parts, avoided) if leaving else None

    def _after_leaving(self, run: HeldRoom, left_s: float, leaving: Leaving) -> Entry:
        """A job that was asked to leave, as it waits again."""
        rank, sequence, submitted, candidate = run.entry
        run_s = max(self.now - run.begun_s, 0.0)
        left_s += candidate.restart_s
        if candidate.loses_run:
            left_s, run_s = left_s + run_s, 0.0
        if candidate.weighing is not None:
            rank = (*rank[:-1], leaving.key)
        again = replace(
            candidate, rank=rank, length=Length(left_s), requeued_s=self.now - submitted,
            served_s=candidate.served_s + run_s, displaces_above=leaving.displaces_above,
        )  # fmt: skip
        return rank, sequence, submitted, again

    def _requeue_left(self) -> None:
        for entry in self._left:
            self._wait(entry)
        self._left.clear()

    def _begin(self, entry: Entry, taken: Taken) -> None:
        candidate = entry[3]
        del self._waiting[entry[1]]
        self._ahead -= entry < self._target
        if self._bounds:
            self._bounds.add(entry, -1)
        if self._head is not None and entry[1] == self._head[1]:
            self._head, self._kept = None, set()
        run = HeldRoom(entry, taken, self.now + candidate.expected_s, self.now)
        self._book(run, -1)
        self._run(run, self.now + candidate.length.drawn_s(next(self._draws), self._stretch))

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

    # ---- reservations -------------------------------------------------------------------------------------------

    def _reserve(self, entry: Entry) -> None:
        """Keep for the first job without room the nodes that should have it first.

        To a job that is overdue they are kept until it starts.
        """
        before, self._head = self._head, entry
        is_same = before is not None and before[1] == entry[1]
        if is_same and (self._kept_until > self.now or (entry[3].overdue and self._kept)):
            return
        self._kept_until, self._kept = self._room_expected(entry) or (0.0, set())
        if self._kept_until <= self.now and not entry[3].overdue:
            self._kept = set()  # room that is there by count, and yet does not do, comes no nearer by being kept

    def _room_expected(self, entry: Entry) -> tuple[float, set[int]] | None:
        """When a job should have room, and on which nodes."""
        self.steps += len(self._expected) // 8
        runs, now = self._runs, self.now
        passed = bisect_left(self._expected, (now, 0))
        outlived = sorted(
            (now + MORE_OF_RUN * (now - runs[number].begun_s), number) for _, number in self._expected[:passed]
        )
        ends = merge(outlived, islice(self._expected, passed, None))
        return self._rooms.nodes_of(entry[3].demand.parts, ((at, runs[number].taken) for at, number in ends))

    def _avoided(self, entry: Entry) -> Collection[int]:
        """The nodes that are kept from a job for the one ahead of it, or that close too soon for it."""
        now, candidate = self.now, entry[3]
        bound = self._head is not None and entry > self._head and now + candidate.cautious_s > self._kept_until
        kept: Collection[int] = self._kept if bound else ()
        if not self._model.flips:
            return kept
        stays = now + candidate.stays_s
        return {*kept, *(node for at, node, amount in self._model.flips if amount < 0 and now < at < stays)}
