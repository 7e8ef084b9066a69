"""Nodes that are off, or boot, and are needed: by waiting work, as a trial finds that is rolled back, or reserved."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import islice
from typing import Final

import numpy as np

from millpond.scheduling.cycle.claims import Claims, both, charge_placed
from millpond.scheduling.cycle.job_placement import Placed, Placer
from millpond.scheduling.estimating.line_order import LineOrder
from millpond.scheduling.placement.arrays import NodeMask
from millpond.scheduling.records import JobRecord, TaskRecord
from millpond.scheduling.reserving.choosing import reserved_soon
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.admission import admitted_tasks

MOST_JOBS: Final = 512
"""So many of those that wait are looked at; the next look sees the others."""
MOST_SEARCHES: Final = 64
"""For so many of them nodes are searched that are to be woken; most of a burst find room on those of the first."""


def nodes_to_wake(state: State, placer: Placer, claims: Claims) -> dict[str, str]:
    """By node, the first job in line that needs it beside what is on; jobs that fit on what is on need none.

    Nodes that are kept for a reservation which is near are needed by that. Each job takes its place before the next is
    tried, within its limits, so that no two count on the same room.
    """
    down = state.cordons.powered_down(state.now)
    reserved = {node: who for node, who in reserved_soon(state).items() if node in down}
    if not down or not state.waiting.count or state.holds:
        return reserved
    rounds = placer.selector.rounds
    mark = state.journal.begin()
    trial = _WakingTrial(state, placer, down)
    pools = {node.pool for name in down if (node := state.cluster.node_named(name)) is not None}
    ranked = (record for record in LineOrder(state).records if record.job.pool in pools)
    for record in islice(ranked, MOST_JOBS):
        tasks = admitted_tasks(state, record)
        if tasks and record.id not in claims.by_job:
            trial.give_place(record, tasks, claims.mask(record))
        if trial.searches >= MOST_SEARCHES:
            break
    state.journal.rollback(mark)
    placer.selector.rounds = rounds
    return trial.woken | reserved


class _WakingTrial:
    """All nodes that are closed for their power are opened on the ledger, and woken one by one as jobs need them.

    Attributes:
        woken: by node, the first job that needs it.
        searches: how many jobs did not fit on what is awake.
    """

    def __init__(self, state: State, placer: Placer, down: Sequence[str]) -> None:
        self._state = state
        self._placer = placer
        cluster = state.cluster
        self._awake: NodeMask = (cluster.arrays.node_usable[: cluster.arrays.node_count] != 0).astype(np.uint8)
        self._asleep = [cluster.node_index[name] for name in down]
        self.woken: dict[str, str] = {}
        self.searches = 0
        for name in down:
            cluster.set_closed(name, False)

    def give_place(self, record: JobRecord, tasks: Sequence[TaskRecord], mask: NodeMask | None) -> None:
        """Place a job on what is awake and the first few of the others, as few as it takes."""

        def place(count: int) -> Placed | None:
            there = self._awake.copy()
            there[self._asleep[:count]] = 1
            return self._placer.place(record, both(mask, there), tasks=tasks)

        def fits(count: int) -> bool:
            mark = self._state.journal.begin()
            found = place(count)
            self._state.journal.rollback(mark)
            return found is not None

        if (placed := place(0)) is None:
            self.searches += 1
            most = len(self._asleep)
            if not fits(most):
                return
            placed = place(bisect_left(range(most), True, lo=1, key=fits)) or []
        charge_placed(self._state, record, placed)
        for node in {holding.node for _, holding in placed}.intersection(self._asleep):
            self.woken[self._state.cluster.node_name(node)] = record.id
            self._asleep.remove(node)
            self._awake[node] = 1
