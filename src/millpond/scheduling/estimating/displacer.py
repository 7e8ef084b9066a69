"""Who leaves for whom in a future: running work leaves for a higher class, and where the ordering puts it later.

The rules are those of ``reclaiming.plans`` without guarantees, moves, and minimum run times.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from millpond.scheduling.estimating.possible_jobs import Candidate, Demand, HeldRoom, Rank
from millpond.scheduling.ordering.default import COST_WEIGHT, MARGIN_GUESSED, MARGIN_KNOWN, PATIENCE
from millpond.scheduling.ordering.forecasts import NEVER
from millpond.scheduling.ordering.running import aged_key
from millpond.scheduling.ordering.survival import BINS, EDGES
from millpond.scheduling.placement.arrays import BoolArray, FloatArray
from millpond.scheduling.reclaiming.preemption_budget import SAVED_UP_S

AGAIN_S = 120.0
"""After so long a job for which nobody could leave is tried again."""

RUNS_PER_STEP, VICTIMS_PER_STEP = 16, 2
"""So many running jobs, and so many of those that might leave, are looked at in the time of a step of a future."""

_EDGES = np.array(EDGES)
_FIELDS = (_CLASS, _TIER, _LEAVES, _BEGUN, _SERVED, _WAITED, _WHOLE, _EXACT, _SIZE_CLASS, _WEIGHT, _CHARGE, _LOSS,
           _NUMBER, _AMOUNT) = range(14)  # fmt: skip


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


class _HeldOnNode(NamedTuple):
    """What a run holds of a node: in the order in which runs of lower classes leave it, from the last."""

    begun_s: float
    number: int
    amount: int


class _Victims(NamedTuple):
    """Who may leave for a job.

    Attributes:
        harm: of their leaving, by number.
        on_node: what they hold of which node, from the last that would leave it to the first.
    """

    harm: dict[int, float]
    on_node: dict[int, list[_HeldOnNode]]


class Displacer:
    """Finds room for waiting jobs on what runs in one future.

    Attributes:
        steps: what it took so far.
    """

    def __init__(self, preemption: Preemption) -> None:
        self._preemption = preemption
        self._runs: list[tuple[int, HeldRoom]] = []
        self._place: dict[int, int] = {}
        self._on_node: dict[int, list[_HeldOnNode]] = {}
        self._table = np.zeros((len(_FIELDS), 256))
        self._may_leave = Counter[tuple[float, float]]()
        """By class and tier: how many runs may leave."""
        self._budget, self._earned_at = preemption.budget, 0.0
        self._in_vain: dict[tuple[int, float, float], tuple[float, float]] = {}
        """By line, tier and class: when nobody could leave for one of them, and above which key."""
        self._highest, self._highest_until = NEVER, -NEVER
        """Above what no run comes by its key, but for a while only: keys that are guessed rise."""
        self.steps = 0

    def fork(self) -> Displacer:
        """A twin with which a future begins."""
        twin = Displacer(self._preemption)
        twin._runs, twin._place, twin._table = self._runs.copy(), self._place.copy(), self._table.copy()
        twin._on_node = {node: parts.copy() for node, parts in self._on_node.items()}
        twin._highest, twin._may_leave = self._highest, self._may_leave.copy()
        return twin

    def add(self, number: int, run: HeldRoom) -> None:
        """A job has begun to run."""
        rank, _, submitted, candidate = run.entry
        place = self._place[number] = len(self._runs)
        self._runs.append((number, run))
        if place == self._table.shape[1]:
            self._table = np.concatenate((self._table, np.zeros_like(self._table)), axis=1)
        weighing = candidate.weighing
        whole, exact, size_class, weight, charge, loss = NEVER, False, 0, 0.0, NEVER, 0.0
        if weighing is not None:
            self._highest = max(self._highest, rank[-1] / weighing.stretch)
        if weighing is not None and not candidate.overdue:
            whole, exact, size_class = weighing.whole_s, weighing.is_exact, weighing.size_class
            weight, charge, loss = weighing.weight, weighing.charge, weighing.loss
        self._table[:, place] = (
            rank[1], rank[0], candidate.may_leave, run.begun_s, candidate.served_s,
            max(run.begun_s - submitted - candidate.served_s, 0.0), whole, exact, size_class, weight, charge, loss,
            number, candidate.demand.total,
        )  # fmt: skip
        self._may_leave[rank[1], rank[0]] += candidate.may_leave
        for node, amount in run.taken:
            insort(self._on_node.setdefault(node, []), _HeldOnNode(run.begun_s, number, amount))

    def remove(self, number: int) -> None:
        """It runs no longer."""
        place, last = self._place.pop(number), self._runs.pop()
        run = self._runs[place][1] if place < len(self._runs) else last[1]
        rank, _, _, candidate = run.entry
        self._may_leave[rank[1], rank[0]] -= candidate.may_leave
        for node, amount in run.taken:
            self._on_node[node].remove(_HeldOnNode(run.begun_s, number, amount))
        if last[0] != number:
            self._runs[place] = last
            self._place[last[0]] = place
            self._table[:, place] = self._table[:, len(self._runs)]

    def earn(self, held: int, now: float) -> None:
        """So much of the resource was held since the last time."""
        rate = self._preemption.earned * held
        most = max(self._budget, rate * SAVED_UP_S)
        self._budget = min(self._budget + rate * (now - self._earned_at), most)
        self._earned_at = now

    def leaving_for(
        self, candidate: Candidate, free: Sequence[int], avoided: Collection[int], now: float
    ) -> list[Leaving]:
        """Who leaves so that a job has room, none if that cannot be; what it costs is spent.

        Args:
            free: room of each node.
        """
        own, above = candidate.rank, candidate.displaces_above
        alike = candidate.line, own[0], own[1]
        tried_at, tried_above = self._in_vain.get(alike, (-NEVER, NEVER))
        if not self._runs or (now < tried_at + AGAIN_S and above >= tried_above):
            return []
        if not self._preemption.by_class and now < self._highest_until and above >= self._highest:
            return []
        self.steps += 1 + len(self._runs) // RUNS_PER_STEP
        if not self._preemption.by_ordering and not self._has_lower(own):
            self._in_vain[alike] = (now, above)
            return []
        table = self._table[:, : len(self._runs)]
        may_leave: BoolArray = (table[_LEAVES] > 0.0) & (table[_TIER] >= own[0])
        lower = may_leave & (table[_CLASS] > own[1]) if self._preemption.by_class else np.zeros_like(may_leave)
        keys = charges = np.full(len(self._runs), NEVER)
        if self._preemption.by_ordering:
            keys, charges, _ = self._weigh(table, now)
            self._highest, self._highest_until = float((keys - charges).max()), now + AGAIN_S
        equals = may_leave & (table[_CLASS] == own[1]) & (keys > above + charges)
        self.steps += int((equals | lower).sum()) // VICTIMS_PER_STEP
        victims = self._victims(own, equals, lower, keys, now)
        chosen = self._choose(candidate, victims, free, avoided) if victims.harm else None
        if chosen is None:
            self._in_vain[alike] = (now, above)
            return []
        places = [self._place[number] for number in sorted(chosen)]
        keys, charges, is_known = self._weigh(table[:, places], now)
        cost = sum(charges[~lower[places]].tolist()) / COST_WEIGHT
        if cost > self._budget:
            return []
        self._budget -= cost
        bounds = np.where(is_known, MARGIN_KNOWN, MARGIN_GUESSED) * keys
        numbers = [self._runs[place][0] for place in places]
        return list(map(Leaving, numbers, keys.tolist(), bounds.tolist()))

    def _victims(self, own: Rank, equals: BoolArray, lower: BoolArray, keys: FloatArray, now: float) -> _Victims:
        """Of (runs,) equals and those of lower classes, all but equals of queues whose turn is before that of a job."""
        table, runs = self._table, self._runs
        equal = [place for place in np.flatnonzero(equals).tolist() if runs[place][1].entry[0][2:-1] >= own[2:-1]]
        places = np.concatenate((np.flatnonzero(lower), np.array(equal, dtype=np.int64)))
        begun = table[_BEGUN, places]
        of_lower = np.maximum(now - begun, 1.0) * 10.0 ** (-6.0 * table[_CLASS, places])
        preference = np.where(lower[places], begun, keys[places])
        of_equals = 1.0 / np.where(lower[places], 1.0, keys[places])  # their keys are above that of the job
        harm = np.where(lower[places], of_lower, of_equals) * table[_AMOUNT, places]
        numbers = table[_NUMBER, places].tolist()
        harm_of = dict(zip(numbers, harm.tolist(), strict=True))
        on_node = {
            node: found
            for node, parts in self._on_node.items()
            if (found := [part for part in parts if part.number in harm_of])
        }
        if equal:
            of_number = dict(zip(numbers, preference.tolist(), strict=True))
            for found in on_node.values():
                found.sort(key=lambda part: (of_number[part.number], part.number))
        return _Victims(harm_of, on_node)

    def _has_lower(self, own: Rank) -> bool:
        """Whether any run may leave for one of a higher class."""
        return any(
            count and priority > own[1] and tier >= own[0] for (priority, tier), count in self._may_leave.items()
        )

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
        most = [amount + sum(part.amount for part in victims.on_node.get(node, ())) for node, amount in enumerate(free)]
        tries = [self._choose_once(candidate.demand, victims, free, avoided) for _ in spaced.starts(most)]
        return min(tries, key=itemgetter(0), default=(NEVER, None))[1]

    def _choose_once(
        self, demand: Demand, victims: _Victims, free: Sequence[int], avoided: Collection[int]
    ) -> tuple[float, set[int] | None]:
        """The harm, and whose leaving it is; of tasks that must lie in some way to each other, from one start."""
        chosen: set[int] = set()
        used: dict[int, int] = {}
        harm_of_all, spaced = 0.0, demand.spaced
        for number, (count, amount, will_do) in enumerate(demand.parts):
            for _ in range(count):
                best: tuple[float, int, list[int]] = (NEVER, -1, [])
                nodes = victims.on_node if count == 1 and spaced is None else range(len(will_do))
                if spaced is not None:
                    will_do = spaced.open_to(number)
                self.steps += len(nodes) // VICTIMS_PER_STEP
                for node in nodes:
                    if node in avoided or not will_do[node]:
                        continue
                    room = free[node] - used.get(node, 0)
                    harm, leaving = 0.0, []
                    for part in reversed(victims.on_node.get(node, ())):
                        if room >= amount or harm >= best[0]:
                            break
                        if part.number not in chosen:
                            harm += victims.harm[part.number]
                            leaving.append(part.number)
                        room += part.amount
                    if room >= amount and harm < best[0]:
                        best = (harm, node, leaving)
                if best[1] < 0:
                    return NEVER, None
                used[best[1]] = used.get(best[1], 0) + amount
                chosen.update(best[2])
                harm_of_all += best[0]
                if spaced is not None:
                    spaced.lay(number, best[1])
        return harm_of_all, chosen
