"""Who leaves for whom in a future: what is borrowed for those whom a guarantee covers, lower classes for higher ones,
and where the ordering displaces, what comes later.

The rules are those of ``reclaiming.plans`` without moves, and without what guarantees on which both sides live ask.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from millpond.scheduling.estimating.guaranteed_runs import GuaranteedRuns
from millpond.scheduling.estimating.held_nodes import HeldNodes, HeldOnNode, NodeBound
from millpond.scheduling.estimating.possible_jobs import Candidate, Demand, Guarantor, HeldRoom, Rank
from millpond.scheduling.ordering.default import COST_WEIGHT, MARGIN_GUESSED, MARGIN_KNOWN, PATIENCE
from millpond.scheduling.ordering.forecasts import NEVER
from millpond.scheduling.ordering.running import aged_key
from millpond.scheduling.ordering.survival import BINS, EDGES
from millpond.scheduling.placement.arrays import BoolArray, FloatArray, Int64Array
from millpond.scheduling.reclaiming.preemption_budget import SAVED_UP_S

AGAIN_S = 120.0
"""After so long a job for which nobody could leave is tried again."""

RUNS_PER_STEP, VICTIMS_PER_STEP = 16, 2
"""So many running jobs, and so many of those that might leave, are looked at in the time of a step of a future."""

_EDGES = np.array(EDGES)
_FIELDS = (_CLASS, _LEAVES, _PROTECTED, _BEGUN, _SERVED, _WAITED, _WHOLE, _EXACT, _SIZE_CLASS, _WEIGHT, _CHARGE,
           _LOSS, _AMOUNT) = range(13)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Preemption:
    """What may be displaced.

    Attributes:
        by_ordering, by_class: work of the same class, where the ordering puts it later; and of lower ones.
        ranks: (size classes, bins) the learnt seconds left.
        budget: card-seconds that the former may cost now,
        earned: and how many more for each unit of the resource that is held and each second.
    """

    by_ordering: bool
    by_class: bool
    ranks: FloatArray
    budget: float
    earned: float


class Leaving(NamedTuple):
    """A run that is asked to leave.

    Attributes:
        key, displaces_above: with which it waits again.
    """

    number: int
    key: float
    displaces_above: float


class _Victims(NamedTuple):
    """Who may leave for a job.

    Attributes:
        harm: (numbers,) of their leaving; infinite for all others.
        on_node: what they, and maybe others, hold of which node, from the last that would leave it to the first.
    """

    harm: FloatArray
    on_node: Mapping[int, Sequence[HeldOnNode]]

    def has_any(self, node: int) -> bool:
        """Whether one of them holds anything of a node."""
        return any(self.harm[part.number] < NEVER for part in self.on_node.get(node, ()))


class _Choice:
    """Whose leaving gives the tasks of a job their places, one after the other.

    Attributes:
        chosen: their numbers,
        harm: of their leaving.
    """

    def __init__(self, victims: _Victims, free: Sequence[int], avoided: Collection[int]) -> None:
        self._victims = victims
        self._free = free
        self._avoided = avoided
        self._used: dict[int, int] = {}
        self.chosen: set[int] = set()
        self.harm = 0.0

    def place(self, nodes: Iterable[NodeBound], amount: int, will_do: bytes) -> int:
        """Choose who leaves for a task, on the node of the least harm; which one, below 0 if there is none.

        Args:
            nodes: in order of their bounds, and of their places.
        """
        victims, chosen = self._victims, self.chosen
        least, best, leaving = (NEVER, -1), -1, list[int]()
        for least_harm, place, node in nodes:
            if (least_harm, place) >= least:
                break
            if node in self._avoided or not will_do[node]:
                continue
            room = self._free[node] - self._used.get(node, 0)
            harm, on_this = 0.0, list[int]()
            for _, number, held in reversed(victims.on_node.get(node, ())):
                if room >= amount or (harm, place) >= least:
                    break
                if victims.harm[number] == NEVER:
                    continue
                if number not in chosen:
                    harm += victims.harm[number]
                    on_this.append(number)
                room += held
            if room >= amount and (harm, place) < least:
                least, best, leaving = (harm, place), node, on_this
        if best >= 0:
            self._used[best] = self._used.get(best, 0) + amount
            chosen.update(leaving)
            self.harm += least[0]
        return best


class Displacer:
    """Finds room for waiting jobs on what runs in one future.

    Attributes:
        steps: what it took so far.
    """

    def __init__(self, preemption: Preemption, runs: Sequence[HeldRoom] = ()) -> None:
        """``runs``: who runs at first, numbered from 0."""
        self._preemption = preemption
        self._runs = list(enumerate(runs))
        room = max(256, 2 * len(runs))
        self._place: Int64Array = np.arange(room)
        """By number, where a run is in the table."""
        self._nodes = HeldNodes()
        self._table = np.zeros((len(_FIELDS), room))
        self._numbers: Int64Array = np.arange(room)
        """By place in the table, whose it is."""
        if runs:
            self._table[:, : len(runs)] = np.array([_fields(run) for run in runs]).T
        self._may_leave = Counter[float]()
        """By class: how many runs may leave."""
        self._guaranteed = GuaranteedRuns()
        self._budget, self._earned_at = preemption.budget, 0.0
        self._in_vain: dict[tuple[int, bool, float], tuple[float, float]] = {}
        """By line, whether a guarantee covers it, and class: until when nobody will leave, and above which key."""
        self._highest, self._highest_until = NEVER, -NEVER
        """Above what no run comes by its key, but for a while only: keys that are guessed rise."""
        self.steps = 0
        for number, run in self._runs:
            self._note(number, run)

    def fork(self, spare: Sequence[int]) -> Displacer:
        """A twin with which a future begins, in which each account may hold so much more."""
        self._guaranteed.find_owed(spare)
        twin = Displacer(self._preemption)
        twin._runs, twin._place, twin._table = self._runs.copy(), self._place.copy(), self._table.copy()
        twin._numbers, twin._nodes = self._numbers.copy(), self._nodes.fork()
        twin._highest, twin._may_leave = self._highest, self._may_leave.copy()
        twin._guaranteed = self._guaranteed.fork()
        return twin

    def add(self, number: int, run: HeldRoom) -> None:
        """A job has begun to run."""
        place = len(self._runs)
        if number >= len(self._place):
            self._place = np.concatenate((self._place, np.zeros(number + 1, dtype=np.int64)))
        self._place[number] = place
        self._runs.append((number, run))
        if place == self._table.shape[1]:
            self._table = np.concatenate((self._table, np.zeros_like(self._table)), axis=1)
            self._numbers = np.concatenate((self._numbers, np.zeros_like(self._numbers)))
        self._numbers[place] = number
        self._table[:, place] = _fields(run)
        self._note(number, run)

    def _note(self, number: int, run: HeldRoom) -> None:
        rank, _, _, candidate = run.entry
        if candidate.weighing is not None:
            self._highest = max(self._highest, rank[-1] / candidate.weighing.stretch)
        self._may_leave[rank[1]] += candidate.may_leave
        self._guaranteed.add(number, run)
        self._nodes.add(number, run.begun_s, run.taken)

    def remove(self, number: int) -> None:
        """It runs no longer."""
        place, last = int(self._place[number]), self._runs.pop()
        run = self._runs[place][1] if place < len(self._runs) else last[1]
        rank, _, _, candidate = run.entry
        self._may_leave[rank[1]] -= candidate.may_leave
        self._guaranteed.remove(number, run)
        self._nodes.remove(number, run.begun_s, run.taken)
        if last[0] != number:
            self._runs[place] = last
            self._place[last[0]] = place
            self._table[:, place] = self._table[:, len(self._runs)]
            self._numbers[place] = last[0]

    def earn(self, held: int, now: float) -> None:
        """So much of the resource was held since the last time."""
        rate = self._preemption.earned * held
        most = max(self._budget, rate * SAVED_UP_S)
        self._budget = min(self._budget + rate * (now - self._earned_at), most)
        self._earned_at = now

    def leaving_for(
        self, candidate: Candidate, free: Sequence[int], avoided: Collection[int], now: float, spare: Sequence[int]
    ) -> list[Leaving]:
        """Who leaves so that a job has room, none if that cannot be; what it costs is spent.

        Args:
            free: room of each node.
            spare: how much each account may hold more.
        """
        own, above = candidate.rank, candidate.displaces_above
        covering = candidate.demand.covering(spare)
        alike = candidate.line, covering is not None, own[1]
        again_at, tried_above = self._in_vain.get(alike, (-NEVER, NEVER))
        if not self._runs or (now < again_at and above >= tried_above):
            return []
        is_by_key = covering is None and not self._preemption.by_class
        if is_by_key and now < self._highest_until and above >= self._highest:
            return []
        self.steps += 1 + len(self._runs) // RUNS_PER_STEP
        if covering is None and not self._preemption.by_ordering and not self._has_lower(own):
            self._in_vain[alike] = (now + AGAIN_S, above)
            return []
        may_leave = self._may_leave_for(candidate.demand, now, spare)
        lower = self._by_right(own, covering, may_leave)
        equals, keys = self._equals(own, above, may_leave & ~lower, now)
        count = int(lower.sum()) + len(equals)
        self.steps += count // VICTIMS_PER_STEP
        victims = self._victims(own, equals, lower, keys, now)
        chosen = self._choose(candidate, victims, free, avoided) if count else None
        if chosen is None:
            protected_s = self._table[_PROTECTED, : len(self._runs)]
            ends = protected_s[protected_s > now]
            self._in_vain[alike] = (min(now + AGAIN_S, float(ends.min(initial=NEVER))), above)
            return []
        return self._leaving(sorted(chosen), lower, now)

    def _equals(self, own: Rank, above: float, may_leave: BoolArray, now: float) -> tuple[list[int], FloatArray]:
        """The places of those that come later by the ordering, and (runs,) the keys of now, by which they do."""
        if not self._preemption.by_ordering:
            return [], np.zeros(0)
        table = self._table[:, : len(self._runs)]
        keys, charges, _ = self._weigh(table, now)
        self._highest, self._highest_until = float((keys - charges).max()), now + AGAIN_S
        equals = may_leave & (table[_CLASS] == own[1]) & (keys > above + charges)
        return equals.nonzero()[0].tolist(), keys

    def _leaving(self, numbers: Sequence[int], lower: BoolArray, now: float) -> list[Leaving]:
        """Those that were chosen, with the keys with which they wait again; none if they cost more than is left."""
        if not self._preemption.by_ordering:
            return [Leaving(number, NEVER, NEVER) for number in numbers]
        places = self._place[numbers]
        keys, charges, is_known = self._weigh(self._table[:, places], now)
        cost = sum(charges[~lower[places]].tolist()) / COST_WEIGHT
        if cost > self._budget:
            return []
        self._budget -= cost
        bounds = np.where(is_known, MARGIN_KNOWN, MARGIN_GUESSED) * keys
        return list(map(Leaving, numbers, keys.tolist(), bounds.tolist()))

    def _may_leave_for(self, demand: Demand, now: float, spare: Sequence[int]) -> BoolArray:
        """(runs,) who is not protected now, nor owed its place by a guarantee that is none of the job's own."""
        table = self._table[:, : len(self._runs)]
        may_leave: BoolArray = (table[_LEAVES] > 0.0) & (table[_PROTECTED] <= now)
        path = [each.number for each in demand.counted.guarantors]
        may_leave &= ~self._guaranteed.owed_beside(path, self._numbers[: len(self._runs)], spare)
        return may_leave

    def _by_right(self, own: Rank, covering: Guarantor | None, may_leave: BoolArray) -> BoolArray:
        """(runs,) who of those leaves whatever the ordering says: for a higher class, or for the guarantee of a job."""
        of_class = self._table[_CLASS, : len(self._runs)]
        lower = may_leave & (of_class > own[1]) if self._preemption.by_class else np.zeros_like(may_leave)
        if covering is not None:
            beside = may_leave.copy()
            beside[self._place[self._guaranteed.living_on(covering.number)]] = False
            lower |= beside
        return lower

    def _victims(self, own: Rank, equals: Sequence[int], lower: BoolArray, keys: FloatArray, now: float) -> _Victims:
        """Of (runs,) those who leave by right, and equals but for those of queues whose turn is before the job's."""
        table, runs = self._table, self._runs
        equal = [place for place in equals if runs[place][1].entry.rank[2:-1] >= own[2:-1]]
        by_right = lower.nonzero()[0]
        harm = np.full(len(self._place), NEVER)
        of_lower = np.maximum(now - table[_BEGUN, by_right], 1.0) * 10.0 ** (-6.0 * table[_CLASS, by_right])
        harm[self._numbers[by_right]] = of_lower * table[_AMOUNT, by_right]
        if not equal:
            return _Victims(harm, self._nodes.on_node)
        harm[self._numbers[equal]] = 1.0 / keys[equal] * table[_AMOUNT, equal]  # their keys are above that of the job
        latest = np.full(len(self._place), NEVER)
        latest[self._numbers[by_right]] = table[_BEGUN, by_right]
        latest[self._numbers[equal]] = keys[equal]
        preference, may_leave = latest.tolist(), (harm < NEVER).tolist()
        on_node = {
            node: sorted(found, key=lambda part: (preference[part.number], part.number))
            for node, parts in self._nodes.on_node.items()
            if (found := [part for part in parts if may_leave[part.number]])
        }
        return _Victims(harm, on_node)

    def _has_lower(self, own: Rank) -> bool:
        """Whether any run may leave for one of a higher class."""
        return any(count and priority > own[1] for priority, count in self._may_leave.items())

    def _weigh(self, table: FloatArray, now: float) -> tuple[FloatArray, FloatArray, BoolArray]:
        """(runs,) the keys of now; by how much more a key that displaces each must be lower; whose length is known."""
        run_s = np.maximum(now - table[_BEGUN], 0.0)
        service = table[_SERVED] + run_s
        is_known: BoolArray = (table[_EXACT] > 0.0) | ((service < table[_WHOLE]) & (table[_WHOLE] < NEVER))
        bins = np.minimum(np.searchsorted(_EDGES, service, side="right") - 1, BINS - 1)
        learnt = self._preemption.ranks[table[_SIZE_CLASS].astype(np.int64), bins]
        left = np.maximum(np.where(is_known, table[_WHOLE] - service, learnt), 1.0)
        keys: FloatArray = aged_key(left, table[_WEIGHT], table[_WAITED], service, PATIENCE)
        return keys, table[_CHARGE] + table[_LOSS] * run_s, is_known

    def _choose(
        self, candidate: Candidate, victims: _Victims, free: Sequence[int], avoided: Collection[int]
    ) -> set[int] | None:
        """Whose leaving gives each task its place, with the least harm; None if no departures do."""
        spaced = candidate.demand.spaced
        if spaced is None:
            return self._choose_once(candidate.demand, victims, free, avoided)[1]
        most = list(free)
        for node, parts in victims.on_node.items():
            most[node] += sum(part.amount for part in parts if victims.harm[part.number] < NEVER)
        tries = [self._choose_once(candidate.demand, victims, free, avoided) for _ in spaced.starts(most)]
        return min(tries, key=itemgetter(0), default=(NEVER, None))[1]

    def _choose_once(
        self, demand: Demand, victims: _Victims, free: Sequence[int], avoided: Collection[int]
    ) -> tuple[float, set[int] | None]:
        """The harm, and whose leaving it is; of tasks that must lie in some way to each other, from one start."""
        choice, spaced = _Choice(victims, free, avoided), demand.spaced
        for number, (count, amount, will_do) in enumerate(demand.parts):
            nodes, looked_at = self._nodes_for(demand, number, victims, free)
            for _ in range(count):
                if spaced is not None:
                    will_do = spaced.open_to(number)
                self.steps += looked_at // VICTIMS_PER_STEP
                node = choice.place(nodes, amount, will_do)
                if node < 0:
                    return NEVER, None
                if spaced is not None:
                    spaced.lay(number, node)
        return choice.harm, choice.chosen

    def _nodes_for(
        self, demand: Demand, number: int, victims: _Victims, free: Sequence[int]
    ) -> tuple[Sequence[NodeBound], int]:
        """Where the tasks of a part, by number, may go, and how many nodes that takes to find."""
        count, amount, will_do = demand.parts[number]
        if count == 1 and demand.spaced is None:
            if len(demand.parts) == 1:
                return self._nodes.bounds(victims.harm, amount, free)
            nodes = [(0.0, place, node) for place, node in enumerate(victims.on_node) if victims.has_any(node)]
        else:
            nodes = [(0.0, node, node) for node in range(len(will_do))]
        return nodes, len(nodes)  # what others of its tasks have chosen to leave does no more harm


def _fields(run: HeldRoom) -> tuple[float, ...]:
    """A run in the table."""
    rank, _, submitted, candidate = run.entry
    weighing, served_s = candidate.weighing, candidate.served_s
    weighed: tuple[float, ...] = NEVER, False, 0, 0.0, NEVER, 0.0
    if weighing is not None and not candidate.overdue:
        weighed = (
            weighing.whole_s, weighing.is_exact, weighing.size_class, weighing.weight, weighing.charge, weighing.loss,
        )  # fmt: skip
    waited_s = max(run.begun_s - submitted - served_s, 0.0)
    own = rank[1], candidate.may_leave, run.protected_s, run.begun_s, served_s, waited_s
    return *own, *weighed, candidate.demand.total
