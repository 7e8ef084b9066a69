"""How fair the division of cards between sibling queues was: what each got, against what it was due.

In each interval the cards that siblings held together are divided anew. First each is due its guarantee of that
interval, as far as it demanded so much; where that is more than they held, in proportion. The rest is due by weight, to
none more than it demanded (weighted max-min fairness: Bertsekas and Gallager, *Data Networks*, section 6.5.2). Its
demand is what it held and what its waiting jobs asked for, within its limit, and within its guarantee if it may not
borrow. Idle cards are not divided: that work fits on none of them is no sibling's gain.

The index of an interval is that of Jain, Chiu and Hawe (DEC-TR-301, 1984) over got / due of the siblings with a demand.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

import numpy as np

from millpond.model.resources import CARD_MILLI
from millpond.simulation.results.fairness import jain_index
from millpond.specs.api.pool.queues import QueueInfo
from millpond.specs.api.reports.fairness import FairnessInfo, QueueFairness, SiblingFairness
from millpond.specs.api.reports.time_series import NamedSeries, TimeSeriesInfo

MOST_RATIO: Final = 2.0
"""As which got / due counts at the most, and as which it counts where nothing was due: so a queue that was due next to
nothing does not decide the index."""
_NEGLIGIBLE: Final = 1e-6


def fairness_of(history: TimeSeriesInfo, queues: Sequence[QueueInfo], *, whole: bool) -> FairnessInfo:
    """The division between all siblings of which two or more are among ``queues``.

    Args:
        history: of queues. Of those that are not among ``queues`` nothing is counted.
        queues: as they are today, each behind its parent; parents, weights and limits are taken from these.
        whole: they are all there are.
    """
    series = {each.name: each for each in history.series}
    siblings: dict[str, list[QueueInfo]] = {}
    for queue in queues:
        if queue.parent and queue.name in series:
            siblings.setdefault(queue.parent, []).append(queue)
    return FairnessInfo(
        begin=history.begin,
        end=history.end,
        step_s=history.step_s,
        whole=whole,
        at=history.at,
        siblings=[
            _division(parent, found, [series[each.name] for each in found], len(history.at))
            for parent, found in siblings.items()
            if len(found) > 1
        ],
    )


def due_of(demands: Sequence[float], guarantees: Sequence[float], weights: Sequence[float], held: float) -> list[float]:
    """What is due to each of several siblings of the cards that they held together, which are no more than demanded."""
    due = [min(demand, guarantee) for demand, guarantee in zip(demands, guarantees, strict=True)]
    covered = sum(due)
    if covered >= held:
        return [held * each / covered if covered else 0.0 for each in due]
    left = held - covered
    by_want = sorted(range(len(due)), key=lambda index: (due[index] - demands[index]) / weights[index])
    # Added up, not taken off a sum: beside a large weight a small one would be lost, and nothing left to divide by.
    weights_left = list(accumulate(weights[index] for index in by_want))
    for index, weight_left in zip(reversed(by_want), reversed(weights_left), strict=True):
        more = min(demands[index] - due[index], left * weights[index] / weight_left)
        due[index] += more
        left -= more
    return due


def index_of(got: Sequence[float], due: Sequence[float]) -> float | None:
    """Jain's index of got / due, 1 where all got what they were due; None where fewer than two had a demand."""
    pairs = [(have, owed) for have, owed in zip(got, due, strict=True) if max(have, owed) > _NEGLIGIBLE]
    ratios = [min(have / owed, MOST_RATIO) if owed > _NEGLIGIBLE else MOST_RATIO for have, owed in pairs]
    return round(jain_index(np.array(ratios)), 4) if len(ratios) > 1 else None


def _division(
    parent: str, queues: Sequence[QueueInfo], series: Sequence[NamedSeries], instants: int
) -> SiblingFairness:
    rows = [QueueFairness(name=queue.name, weight=queue.weight) for queue in queues]
    index: list[float | None] = []
    for instant in range(instants):
        used = [each.figures["used"][instant] for each in series]
        known = [number for number, held in enumerate(used) if held is not None]
        got = [used[number] or 0.0 for number in known]
        guarantees = [series[number].figures["guaranteed"][instant] or 0.0 for number in known]
        asked = [series[number].figures["waiting"][instant] or 0.0 for number in known]
        due = due_of(
            [_demand(queues[number], *each) for number, *each in zip(known, got, asked, guarantees, strict=True)],
            guarantees,
            [queues[number].weight for number in known],
            sum(got),
        )
        index.append(index_of(got, due))
        found = dict(zip(known, due, strict=True))
        for number, row in enumerate(rows):
            row.got.append(used[number])
            row.due.append(round(found[number], 3) if number in found else None)
    return SiblingFairness(parent=parent, index=index, queues=rows)


def _demand(queue: QueueInfo, got: float, asked: float, guarantee: float) -> float:
    """How many cards a queue could have held, never less than it did."""
    most = got + asked
    if queue.limit_gpu_milli is not None:
        most = min(most, queue.limit_gpu_milli / CARD_MILLI)
    if not queue.borrows:
        most = min(most, guarantee)
    return max(most, got)
