"""Would it start now? A job, or a variant of it, tried on the ledger and rolled back."""

from __future__ import annotations

from itertools import islice

from millpond.model.reasons import Remedy
from millpond.model.workloads import Job
from millpond.scheduling.cycle.job_placement import NodeMask, Placer
from millpond.scheduling.explaining.remedies import MOST_VARIANTS, variants
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.admission import admitted_tasks
from millpond.scheduling.tenancy.queue_rank import QueueRank


class WhatIfTrial:
    """Tries jobs; nothing is kept."""

    def __init__(self, state: State, placer: Placer) -> None:
        self._state = state
        self._placer = placer

    def fits(self, record: JobRecord, mask: NodeMask | None, job: Job | None = None) -> list[int]:
        """The nodes on which the job, or a variant of it, could start now within quota; empty if it could not."""
        variant = self._variant(record, job or record.job)
        return [] if self._state.holds_back(variant) else self._room(variant, mask)

    def finds_room(self, record: JobRecord, mask: NodeMask | None) -> bool:
        """Whether the job could start now, if the ordering does not leave the room to others."""
        return bool(self._room(self._variant(record, record.job), mask))

    def _variant(self, record: JobRecord, job: Job) -> JobRecord:
        variant = self._state.new_record(job, record.sequence, record.submitted_at)
        variant.expected_s, variant.cautious_s = record.expected_s, record.cautious_s
        return variant

    def _room(self, variant: JobRecord, mask: NodeMask | None) -> list[int]:
        state = self._state
        tasks = admitted_tasks(state, variant)
        if not tasks:
            return []
        mark = state.journal.begin()
        placed = self._placer.place(variant, mask, tasks=tasks)
        state.journal.rollback(mark)
        return [holding.node for _, holding in placed or ()]

    def remedy(self, record: JobRecord, rooms: list[int], mask: NodeMask | None) -> Remedy | None:
        """The first variant, from the smallest change to the largest, that would start now.

        Args:
            rooms: for how many tasks of each role there is room.
            mask: the nodes that are not kept for others.
        """
        for remedy, job in islice(variants(record.job, rooms), MOST_VARIANTS):
            if self.fits(record, mask, job) and self._gets_its_turn(record, job):
                return remedy
        return None

    def _gets_its_turn(self, record: JobRecord, job: Job) -> bool:
        """Whether the ordering lets a variant, submitted now instead of the job, go before all others of its pool.

        Only a strict ordering keeps it back otherwise: there jobs that cannot start hold up all jobs behind them.
        """
        state = self._state
        if not state.ordering.strict:
            return True
        variant = state.new_record(job, state.next_sequence, state.now)
        variant.expected_s, variant.cautious_s = record.expected_s, record.cautious_s
        variant.key = state.ordering.waiting_key(variant, state.now)
        rank = QueueRank(state).rank
        others = [other for other in state.waiting if other is not record and other.job.pool == job.pool]
        return all((rank(variant), variant.sequence) < (rank(other), other.sequence) for other in others)
