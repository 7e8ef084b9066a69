"""One possible future of a pool, played fast: who ends, who comes, and who starts when.

The rules are those of the admission cycle, as far as they decide who waits: the order, strict or not; limits of queues
and users; the reservation of the first job that finds no room; room that the ordering leaves to short work; jobs that
become overdue; running work that leaves for a guarantee, for a higher class, or by the ordering. Left out is what a
pool of nodes with one resource cannot show. Nothing runs faster or slower, or fails.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import merge
from itertools import accumulate, chain, islice
from typing import NamedTuple

from millpond.scheduling.estimating.displacer import Leaving
from millpond.scheduling.estimating.lengths import Length
from millpond.scheduling.estimating.pool_state import FirstRuns, PoolModel
from millpond.scheduling.estimating.possible_jobs import Candidate, Demand, HeldRoom, InLine
from millpond.scheduling.estimating.rooms import PartsInVain, Rooms, Taken
from millpond.scheduling.estimating.wait_bounds import WaitBounds
from millpond.scheduling.ordering.forecasts import NEVER
from millpond.scheduling.ordering.guard import shorter_classes

MORE_OF_RUN = 0.5
"""A job that has outlived what was expected of it is expected to go on for this part of its run so far."""


class _FoundRoom(NamedTuple):
    """Room that a job has taken.

    Attributes:
        was_free: nobody left for it.
        took_back: others left for it by a guarantee.
    """

    demand: Demand
    taken: Taken
    was_free: bool = True
    took_back: bool = False


class Future:
    """A future of a pool.

    Args:
        begin: who runs.
        arrivals: who comes when, without end or in order of time.
        draws: numbers between 0 and 1, by which jobs that start get their lengths.
        stretch: by what every unsure length is multiplied.

    Attributes:
        started_s: when each of those that wait now has started, seconds from now, by sequence.
        steps: what it took so far.
    """

    def __init__(
        self,
        model: PoolModel,
        begin: FirstRuns,
        arrivals: Iterator[tuple[float, Candidate]],
        draws: Iterator[float],
        stretch: float,
    ) -> None:
        self._model = model
        self._rooms = Rooms(model.free, model.unit)
        self._free = sum(amount for amount in model.free if amount > 0)
        self._held = begin.held
        self._spare = list(model.spare)
        self._short_work = list(model.short_work)
        self._arrivals, self._draws, self._stretch = arrivals, draws, stretch
        self._runs, self._end_of = dict(begin.runs), dict(begin.end_of)
        self._ends, self._expected = list(begin.ends), list(begin.expected)
        self._displacer = model.displacer and model.displacer.fork(self._spare)
        self._number = len(begin.runs)
        waiting = model.waiting
        self._lines = {line: entries.copy() for line, entries in waiting.lines.items()}
        self._waiting, self._of_group = waiting.by_sequence.copy(), waiting.of_group.copy()
        self._bounds = model.bounds and model.bounds.fork()
        self._sequence = max(begin.last_sequence, max(self._waiting, default=0)) + 1
        protected = self._runs.values() if self._displacer else ()
        self._holds = sorted(
            [each.until_s for each in model.reserved] + [run.protected_s for run in protected if run.protected_s > 0]
        )
        """When room may be had that nobody gives back: what was kept is not any longer, or what runs may leave."""
        self._held_back = set[int]()
        """Who was ever, of whom ``_holds`` knows until when."""
        self._left: list[InLine] = []
        self._head: InLine | None = None
        self._kept: set[int] = set()
        self._kept_until = 0.0
        self._in_vain, self._in_vain_beside = PartsInVain(self._rooms), PartsInVain(self._rooms)
        """Those that find no room, and those that find none but on nodes that are kept."""
        self._flips = iter((*model.flips, (NEVER, 0, 0)))
        self._flip, self._coming = next(self._flips), next(self._arrivals, None)
        self._has_begun = self._is_over = False
        self._holds_any_back = False
        """Whether anybody leaves room to shorter work for whom running work may leave, once others have that room."""
        self._order_at_last: list[InLine] = []
        self._work_ahead: list[float] = []
        """Of what runs when the future is cut off, and of those that wait then, one after the other,"""
        self._room = 1
        """and how much is done of it in a second."""
        self.now = 0.0
        self.steps = 0
        self.started_s: dict[int, float] = {}

    def start_s(self, sequence: int, most_steps: int) -> float:
        """Seconds until one of those that wait now starts; infinite if nothing more happens before.

        After so many steps, of which ``now`` is the last instant, it is taken to start when the room of the pool has
        done the work that runs and that is ahead by then.
        """
        if not self._has_begun:
            self._has_begun = True
            if self._model.fits_now:
                self._walk()
        while sequence not in self.started_s:
            if self._is_over:
                return NEVER
            if self.steps >= most_steps:
                return self._after_work_ahead(sequence)
            self._go_on()
        return self.started_s[sequence]

    def _go_on(self) -> None:
        """Go to the next instant at which something happens."""
        coming = self._coming
        at = min(
            self._ends[0][0] if self._ends else NEVER,
            coming[0] if coming else NEVER,
            self._flip[0],
            self._holds[0] if self._holds else NEVER,
        )
        if at == NEVER:
            self._is_over = True
            return
        self.now = at
        released = self._end_runs()
        if self._bounds:
            released |= self._promote(self._bounds)
        while self._holds and self._holds[0] <= at:
            heapq.heappop(self._holds)
            released = True
        while self._flip[0] <= at:
            self._rooms.change(self._flip[1], self._flip[2])
            self._flip, released = next(self._flips), True
        came: list[InLine] = []
        while coming and coming[0] <= at:
            came.append(self._come(*coming))
            coming = self._coming = next(self._arrivals, None)
        if released or (came and self._holds_any_back):
            self._walk()
        else:
            for entry in came:
                self._try_alone(entry)

    def _after_work_ahead(self, sequence: int) -> float:
        entry = self._waiting[sequence]
        if not self.started_s or not self._may_have_room(entry):
            return NEVER
        if not self._order_at_last:
            self._order_at_last = sorted(self._waiting.values())
            end_of, now = self._end_of, self.now
            ends = ((run.amount, end_of[number]) for number, run in self._runs.items())
            runs = [(amount, end_s - now) for amount, end_s in ends if end_s < NEVER]
            of_waiting = (each.demand.total * each.expected_s for _, _, _, each in self._order_at_last)
            self._work_ahead = list(accumulate(of_waiting, initial=sum(amount * left_s for amount, left_s in runs)))
            self._room = max(self._free + sum(amount for amount, _ in runs), 1)
        return self.now + self._work_ahead[bisect_left(self._order_at_last, entry)] / self._room

    def _may_have_room(self, entry: InLine) -> bool:
        """Whether a job had room if all that runs left, on nodes that are open now or in the end."""
        now, opened, demand = self.now, Counter[int](), entry.candidate.demand
        for at, node, amount in self._model.flips:
            if at > now:
                opened[node] += amount
        later = [each for each in opened.items() if each[1] > 0]
        for each in demand.choices or (demand,):
            given_back = chain(((now, run.taken) for run in self._runs.values()), ((now, later),))
            if each.nodes_of(self._rooms, given_back) is not None:
                return True
        return False

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
            if run.protected_s > self.now:
                heapq.heappush(self._holds, run.protected_s)

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
        candidate = run.entry.candidate
        amount = sign * run.amount
        self._free += amount
        self._held -= amount
        if candidate.length_class >= 0:
            self._short_work[candidate.length_class] -= amount
        for account, charge in run.counted.booked:
            self._spare[account] += sign * charge

    def _promote(self, bounds: WaitBounds) -> bool:
        """Let those go first from now on that have become overdue; whether there was one.

        As in a cycle, running work is read for one of them alone.
        """
        found = False
        for entry in bounds.due(self.now):
            if self._waiting.get(entry.sequence) is not entry:
                continue
            is_overdue = bounds.is_overdue(entry, self.now)
            if is_overdue is None:
                room = self._room_expected(next(iter(self._admitted(entry.candidate)), entry.candidate.demand))
                bounds.promise(entry, None if room is None else max(room[0], self.now), self.now)
                break
            if is_overdue:
                self._go_first(entry, bounds)
                found = True
        return found

    def _go_first(self, entry: InLine, bounds: WaitBounds) -> None:
        rank = (*entry.rank[:-1], bounds.first(entry))
        candidate = replace(
            entry.candidate,
            rank=rank,
            patience_s=0.0,
            overdue=True,
            displaces_above=bounds.displaces_above(entry.candidate),
        )
        bounds.add(entry, -1)
        line = self._lines[candidate.line]
        line[line.index(entry)] = self._waiting[entry.sequence] = InLine(
            rank, entry.sequence, entry.submitted_s, candidate
        )
        heapq.heapify(line)
        self.steps += 1

    def _come(self, at: float, candidate: Candidate) -> InLine:
        entry = InLine(candidate.rank, self._sequence, at, candidate)
        self._sequence += 1
        self._wait(entry)
        self.steps += 1
        return entry

    def _wait(self, entry: InLine) -> None:
        heapq.heappush(self._lines.setdefault(entry.candidate.line, []), entry)
        self._waiting[entry.sequence] = entry
        self._of_group[entry.candidate.group] += 1
        if self._bounds:
            self._bounds.add(entry, 1)
            if entry.candidate.group < 0:
                self._bounds.watch(entry, self.now)

    # ---- who starts ---------------------------------------------------------------------------------------------

    def _try_alone(self, entry: InLine) -> None:
        """Start a newcomer if it has room: those who wait have not found any before."""
        candidate = entry.candidate
        line = self._lines[candidate.line]
        if line[0] is not entry or (self._model.strict and len(self._waiting) > 1):
            return
        if candidate.strict and self._of_group[candidate.group] > 1:
            return
        placed = self._place(self._ranked(entry), self._admitted(candidate))
        if placed is None:
            return
        if self._gives_back(entry, placed):
            self._holds_any_back = self._displacer is not None
            return
        heapq.heappop(line)
        self._begin(entry, placed)
        self._requeue_left()

    def _walk(self) -> None:
        """Start what has room, in order."""
        lines, model = self._lines, self._model
        may_rise = model.has_guarantees
        heads = [self._ranked(line[0]) for line in lines.values() if line]
        heapq.heapify(heads)
        passed: list[InLine] = []
        blocked = False
        closed = set[int]()
        while heads:
            entry = heapq.heappop(heads)
            if may_rise and (ranked := self._ranked(entry)) > entry:
                heapq.heappush(heads, ranked)
                continue
            candidate = entry.candidate
            line = lines[candidate.line]
            self.steps += 1
            if candidate.group in closed or (blocked and self._is_in_vain(entry)):
                continue
            if not (demands := self._admitted(candidate)):
                continue
            placed = self._place(entry, demands)
            if placed is None:
                if model.strict:
                    break
                if not blocked and (model.reserves or candidate.overdue):
                    self._reserve(entry, demands[0])
                    if not self._displacer:
                        self._leave_out_in_vain(heads)
                blocked = True
                if candidate.strict:
                    closed.add(candidate.group)
                continue
            first = heapq.heappop(line)
            if self._gives_back(entry, placed):
                passed.append(first)
            else:
                self._begin(entry, placed)
            if line:
                heapq.heappush(heads, self._ranked(line[0]))
        self._holds_any_back = bool(passed) and self._displacer is not None
        for entry in passed:
            heapq.heappush(lines[entry.candidate.line], entry)
        self._requeue_left()

    def _leave_out_in_vain(self, heads: list[InLine]) -> None:
        """Look at those all at once that would be passed over one by one."""
        count = len(heads)
        heads[:] = [entry for entry in heads if not self._is_in_vain(entry)]
        heapq.heapify(heads)
        self.steps += count - len(heads)

    def _ranked(self, entry: InLine) -> InLine:
        """One that waits, in the order of this moment: those that a guarantee covers go first."""
        if not self._model.has_guarantees:
            return entry
        rank, tier = entry.rank, float(entry.candidate.demand.covering(self._spare) is None)
        return entry if rank[0] == tier else entry._replace(rank=(tier, *rank[1:]))

    def _admitted(self, candidate: Candidate) -> list[Demand]:
        """On which choices of models of cards the limits admit a job, beside what is reserved while it is there."""
        demand, spare = candidate.demand, self._spare
        if not demand.choices and not demand.counted.limits:
            return [demand]
        if self._model.reserved:
            spare = spare.copy()
            for account, amount in self._kept_of_accounts(candidate).items():
                spare[account] -= amount
        admitted = list[Demand]()
        for each in demand.choices or (demand,):
            for account, charge in each.counted.limits:
                if spare[account] < charge:
                    break
            else:
                admitted.append(each)
        return admitted

    def _kept_of_accounts(self, candidate: Candidate) -> Mapping[int, int]:
        """The most that reservations hold of accounts at any one instant at which a job would be there."""
        now, reserved, most = self.now, self._model.reserved, dict[int, int]()
        for instant in {now, *(each.begin_s for each in reserved if now < each.begin_s < now + candidate.keeps_s)}:
            kept = Counter[int]()
            for each in reserved:
                if each.begin_s <= instant < each.until_s:
                    kept.update(dict(each.charges))
            for account, amount in kept.items():
                most[account] = max(most.get(account, 0), amount)
        return most

    def _place(self, entry: InLine, demands: Sequence[Demand]) -> _FoundRoom | None:
        """Take room for a job, by the first of its choices that has any, or for which work may leave."""
        avoided = self._avoided(entry) if demands else ()
        for demand in demands:
            taken = self._take(demand, avoided)
            if taken:
                return _FoundRoom(demand, taken)
        for demand in demands:
            is_covered = demand.covering(self._spare) is not None
            taken = self._make_room(entry, demand, avoided)
            if taken is not None:
                return _FoundRoom(demand, taken, was_free=False, took_back=is_covered)
        return None

    def _take(self, demand: Demand, avoided: Collection[int]) -> Taken | None:
        """Take a place for all tasks; most of those that ask find none, and ask for what others found none for."""
        if demand.spaced is not None:
            return demand.take(self._rooms, avoided)
        parts, is_kept = demand.parts, avoided is self._kept
        if self._in_vain.has(parts) or (is_kept and self._in_vain_beside.has(parts, avoided)):
            return None
        taken = demand.take(self._rooms, avoided)
        if taken is None and not avoided:
            self._in_vain.add(parts)
        elif taken is None and is_kept:
            self._in_vain_beside.add(parts)
        return taken

    def _is_in_vain(self, entry: InLine) -> bool:
        """Whether a job has no room, nor can any be made, and no other has to wait for that."""
        candidate, demand = entry.candidate, entry.candidate.demand
        if demand.choices or demand.spaced is not None or self._displacer or candidate.strict:
            return False
        parts, kept = demand.parts, self._kept
        return self._in_vain.has(parts) or (
            bool(kept) and self._in_vain_beside.has(parts, kept) and self._avoided(entry) is kept
        )

    def _make_room(self, entry: InLine, demand: Demand, avoided: Collection[int]) -> Taken | None:
        """Let running work leave for a job, if that gives it a place: those wait again."""
        displacer = self._displacer
        if not displacer:
            return None
        displacer.earn(self._held, self.now)
        steps = displacer.steps
        candidate = entry.candidate if demand is entry.candidate.demand else replace(entry.candidate, demand=demand)
        leaving = displacer.leaving_for(candidate, self._rooms.free, avoided, self.now, self._spare)
        self.steps += displacer.steps - steps
        for each in leaving:
            left_s = max(self._end_of[each.number] - self.now, 0.0)
            self._left.append(self._after_leaving(self._stop(each.number), left_s, each))
        return demand.take(self._rooms, avoided) if leaving else None

    def _after_leaving(self, run: HeldRoom, left_s: float, leaving: Leaving) -> InLine:
        """A job that was asked to leave, as it waits again."""
        rank, sequence, submitted, candidate = run.entry
        run_s = max(self.now - run.begun_s, 0.0)
        left_s += candidate.restart_s
        if candidate.loses_run:
            left_s, run_s = left_s + run_s, 0.0
        if candidate.weighing is not None:
            rank = (*rank[:-1], leaving.key * candidate.weighing.stretch)
        again = replace(
            candidate, rank=rank, length=Length(left_s), requeued_s=self.now - submitted,
            served_s=candidate.served_s + run_s, displaces_above=leaving.displaces_above,
        )  # fmt: skip
        return InLine(rank, sequence, submitted, again)

    def _requeue_left(self) -> None:
        for entry in self._left:
            self._wait(entry)
        self._left.clear()

    def _begin(self, entry: InLine, placed: _FoundRoom) -> None:
        candidate = entry.candidate
        del self._waiting[entry.sequence]
        self._of_group[candidate.group] -= 1
        self.started_s.setdefault(entry.sequence, self.now)
        if self._bounds:
            self._bounds.add(entry, -1)
        if self._head is not None and entry.sequence == self._head[1]:
            self._head, self._kept = None, set()
        now = self.now
        expected_s, protected_s = now + candidate.expected_s, now + candidate.minimum_run_s
        run = HeldRoom(entry, placed.taken, expected_s, now, placed.demand.counted, protected_s, placed.took_back)
        self._book(run, -1)
        self._run(run, now + candidate.length.drawn_s(next(self._draws), self._stretch))

    def _gives_back(self, entry: InLine, placed: _FoundRoom) -> bool:
        """Give free room back if a job should leave it to much shorter work; says whether that is so.

        Of room that running work leaves for it, nothing is left to others.
        """
        candidate = entry.candidate
        until = entry.submitted_s + candidate.patience_s
        if until <= self.now or not placed.was_free:
            return False
        shorter = self._short_work[: shorter_classes(candidate.length_class)]
        if self._free - candidate.demand.total >= candidate.spared - sum(shorter):
            return False
        if self._model.has_guarantees and candidate.demand.covering(self._spare) is not None:
            return False
        if entry.sequence not in self._held_back:
            self._held_back.add(entry.sequence)
            heapq.heappush(self._holds, until)
        self._rooms.give(placed.taken)
        return True

    # ---- reservations -------------------------------------------------------------------------------------------

    def _reserve(self, entry: InLine, demand: Demand) -> None:
        """Keep for the first job without room the nodes that should have it first.

        To a job that is overdue they are kept until it starts.
        """
        before, self._head = self._head, entry
        is_same = before is not None and before[1] == entry.sequence
        if is_same and (self._kept_until > self.now or (entry.candidate.overdue and self._kept)):
            return
        self._in_vain_beside.clear()
        self._kept_until, self._kept = self._room_expected(demand) or (0.0, set())
        if self._kept_until <= self.now and not entry.candidate.overdue:
            self._kept = set()  # room that is there by count, and yet does not do, comes no nearer by being kept

    def _room_expected(self, demand: Demand) -> tuple[float, set[int]] | None:
        """When a job should have room, and on which nodes."""
        self.steps += len(self._expected) // 8
        runs, now = self._runs, self.now
        passed = bisect_left(self._expected, (now, 0))
        outlived = sorted(
            (now + MORE_OF_RUN * (now - runs[number].begun_s), number) for _, number in self._expected[:passed]
        )
        ends = merge(outlived, islice(self._expected, passed, None))
        given_back = ((at, runs[number].taken) for at, number in ends)
        if demand.spaced is not None:
            self.steps += len(self._expected)
        return demand.nodes_of(self._rooms, given_back)

    def _avoided(self, entry: InLine) -> Collection[int]:
        """The nodes that are kept from a job for the one ahead of it, or that close too soon for it."""
        now, candidate = self.now, entry.candidate
        bound = self._head is not None and entry > self._head and now + candidate.cautious_s > self._kept_until
        kept: Collection[int] = self._kept if bound else ()
        if not self._model.flips:
            return kept
        stays, free = now + candidate.stays_s, self._rooms.free
        most = max((amount for _, amount, _ in candidate.demand.parts), default=0)
        closing = (flip for flip in self._model.flips if flip[2] < 0 and now < flip[0] < stays)
        return {*kept, *(node for _, node, amount in closing if free[node] + amount < most)}
