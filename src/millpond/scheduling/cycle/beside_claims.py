"""Places beside claims: a claim keeps what its job will take, of each resource and each card, and no more.

A job starts on a claimed node if the claimed place is as good with it there once the victims have left.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from millpond.scheduling.cycle.claims import Claim, Claims
from millpond.scheduling.cycle.job_placement import Placed, Placer
from millpond.scheduling.cycle.tried_places import Tries, nodes_of, try_places
from millpond.scheduling.ledger.holdings import NOTHING, RUNNING
from millpond.scheduling.placement.arrays import NodeMask
from millpond.scheduling.records import JobRecord, TaskRecord
from millpond.scheduling.state import State
from millpond.scheduling.suspension.suspension import HOLD_OF, suspended_tasks

TRIES = 16
"""So many places on claimed nodes one walk tries in vain."""


class BesideClaims:
    """Finds places on claimed nodes, in the walks of one state."""

    def __init__(self, state: State, placer: Placer, claims: Claims) -> None:
        self._state = state
        self._placer = placer
        self._claims = claims
        self._tries = Tries(TRIES)

    def begin_walk(self) -> None:
        """A walk begins."""
        self._tries = Tries(TRIES)

    def claimants(self, record: JobRecord) -> list[str]:
        """The jobs beside whose claims another may be placed; none of those that may yet ask others to leave."""
        if not self._tries.left:
            return []
        return [job for job, claim in self._claims.by_job.items() if job != record.id and not claim.asks]

    def place(
        self, record: JobRecord, claimants: Collection[str], mask: NodeMask | None, tasks: list[TaskRecord] | None
    ) -> Placed | None:
        """Take holdings for a job, beside what these others have claimed; None if there is no such room.

        Args:
            mask: (nodes,), 0 keeps a node out; those that they have claimed may be open.
        """
        cluster, claims = self._state.cluster, [self._claims.by_job[job] for job in claimants]

        def find(mask: NodeMask | None, *, off_cards: bool) -> Placed | None:
            mark = cluster.journal.begin()
            if off_cards:
                self._placer.held_twice_milli = self._keep_cards(claims)
            placed = self._placer.place(record, mask, tasks=tasks)
            self._placer.held_twice_milli = 0
            cluster.journal.rollback(mark)
            return placed

        def place(mask: NodeMask | None) -> Placed | None:
            # To keep the cards costs more than to see, in most walks, that there is no room at all.
            placed = find(mask, off_cards=False) and find(mask, off_cards=True)
            for _, holding in placed or ():
                cluster.change(holding, RUNNING)
            return placed

        def in_the_way(placed: Placed) -> list[int]:
            return [node for node in nodes_of(placed) if not self._is_kept(node, claims)]

        return try_places(cluster, place, mask, in_the_way, self._tries)

    def _keep_cards(self, claims: Collection[Claim]) -> int:
        """Count the cards of claimed places as held, on a trial ledger; returns how much compute of them already is."""
        cluster = self._state.cluster
        for _, holding in (pair for claim in claims for pair in claim.placed):
            if holding.hold is NOTHING:
                cards = replace(holding.shape, cpu_milli=0, memory_mib=0, extras=())
                cluster.change(cluster.holding(holding.node, cards, holding.devices), RUNNING)
            else:  # it is to go on where it is suspended
                cluster.change(holding, RUNNING)
        claimed = {card for claim in claims for _, holding in claim.placed for card in holding.devices}
        return sum([max(0, -cluster.arrays.compute_free_cells[card]) for card in claimed])

    def _is_kept(self, node: int, claims: Collection[Claim]) -> bool:
        """Whether what is claimed of a node will be there once those have left who leave for it, and once all have."""
        here = [claim for claim in claims if node in claim.nodes]
        return all(self._come_free(node, [claim]) for claim in here) and (len(here) < 2 or self._come_free(node, here))

    def _come_free(self, node: int, claims: Collection[Claim]) -> bool:
        """Whether the places of some claims on a node will be there once their own victims have left."""
        cluster = self._state.cluster
        mark = cluster.journal.begin()
        for victim, numbers in (pair for claim in claims for pair in self._claims.present(claim)):
            self._let_leave(victim, numbers, node)
        claimed = [holding for claim in claims for _, holding in claim.placed if holding.node == node]
        for holding in claimed:
            cluster.change(holding, RUNNING)
        is_free = not any(map(cluster.is_overdrawn, claimed))
        cluster.journal.rollback(mark)
        return is_free

    def _let_leave(self, victim: JobRecord, numbers: tuple[int, ...], node: int) -> None:
        """Count what leaves of a job on one node as gone, or as what it keeps there while it is suspended.

        Args:
            numbers: the tasks that leave; none: all.
        """
        staying = suspended_tasks(victim)
        for task in victim.tasks:
            if task.holding is not None and task.holding.node == node and (not numbers or task.number in numbers):
                hold = HOLD_OF[victim.suspend_mode] if task in staying else NOTHING
                self._state.cluster.change(task.holding, hold)
