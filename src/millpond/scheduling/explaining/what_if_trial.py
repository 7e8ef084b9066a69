"""Would it start now? A job, or a variant of it, tried on the ledger and rolled back."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final

from millpond.model.reasons import Remedy
from millpond.model.sharing import GPU_SLICES
from millpond.model.workloads import Job
from millpond.scheduling.cycle.admission_cycle import AdmissionCycle
from millpond.scheduling.cycle.claims import Claims
from millpond.scheduling.cycle.job_placement import Placer
from millpond.scheduling.explaining.remedies import MOST_VARIANTS, variants
from millpond.scheduling.explaining.turn import turn_of
from millpond.scheduling.ordering.queueing import new_record, take_place
from millpond.scheduling.placement.arrays import NodeMask
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.admission import admitted_tasks

MOST_REHEARSALS: Final = 8
"""Variants that have room, and with which a whole cycle is tried."""


class WhatIfTrial:
    """Tries jobs; nothing is kept."""

    def __init__(self, state: State, placer: Placer, claims: Claims, cycle: AdmissionCycle) -> None:
        self._state = state
        self._placer = placer
        self._claims = claims
        self._cycle = cycle

    def finds_room(self, record: JobRecord, mask: NodeMask | None) -> list[int]:
        """The nodes on which a job could start now within quota; empty if it could not."""
        state = self._state
        mark = state.journal.begin()
        tasks = admitted_tasks(state, record)
        placed = self._placer.place(record, mask, tasks=tasks) if tasks else None
        state.journal.rollback(mark)
        return [holding.node for _, holding in placed or ()]

    def remedy(self, record: JobRecord, rooms: list[int], is_refused: Callable[[Job], object]) -> Remedy | None:
        """The first variant, from the smallest change to the largest, that would start at once if submitted instead.

        Args:
            rooms: for how many tasks of each role there is room.
            is_refused: whether a job would be refused when it is submitted.
        """
        rehearsals = 0
        cluster = self._state.cluster
        is_named = cluster.words.extras.known(GPU_SLICES) is not None
        nodes = cluster.hardware_index.nodes_of(record.job.pool) if is_named else ()
        # As jobs say who ask for parts where agents give them out (``server.storage.provisioning.pod_jobs``).
        parts_take = ((GPU_SLICES, 1),) if any(GPU_SLICES in dict(node.extras) for node in nodes) else ()
        for remedy, job in islice(variants(record.job, rooms, parts_take), MOST_VARIANTS):
            variant = self._variant(record, job)
            with turn_of(self._state, self._claims, variant):
                has_room = self.finds_room(variant, self._claims.mask(variant))
            if not has_room or is_refused(job):
                continue
            rehearsals += 1
            if self._starts_instead(variant, record):
                return remedy
            if rehearsals == MOST_REHEARSALS:
                break
        return None

    def _variant(self, record: JobRecord, job: Job) -> JobRecord:
        """A record of a variant that is submitted now."""
        state = self._state
        variant = new_record(state, job, state.next_sequence, state.now)
        variant.expected_s, variant.cautious_s = record.expected_s, record.cautious_s
        take_place(state, variant)
        return variant

    def _starts_instead(self, variant: JobRecord, record: JobRecord) -> bool:
        """Whether a cycle starts a variant that stands in line instead of a job."""
        waiting = self._state.waiting
        waiting.remove(record)
        waiting.add(variant)
        try:
            with self._claims.rehearsal():
                for pool, kept in list(self._claims.reservations.items()):
                    if kept.job == record.id:
                        self._claims.keep(pool, None)
                return self._cycle.would_start(variant)
        finally:
            waiting.remove(variant)
            waiting.add(record)
