"""Running jobs come together on fewer cards, so that a job that waits gets those which they leave.

On one node after the other it is tried who could leave it for the job: first to cards of other nodes that are idle,
then to the cards of a partner, the pair first that is expected to bring most. The node is taken on which least is lost.
Who leaves is ended and starts anew; until it does, the cards are claimed for the job that waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final

import numpy as np

from millpond.model.reasons import Cause
from millpond.scheduling import runs
from millpond.scheduling.cycle.claims import Claim, Claims, both
from millpond.scheduling.cycle.job_placement import Placed, Placer
from millpond.scheduling.ledger.holdings import NOTHING
from millpond.scheduling.lifecycle import Trigger
from millpond.scheduling.packing.pair_speeds import PairExpectation
from millpond.scheduling.packing.pairs import held
from millpond.scheduling.packing.partners import jobs_alone, may_be_asked, weight_of
from millpond.scheduling.placement.arrays import NodeMask
from millpond.scheduling.reclaiming.attempts import hold_all
from millpond.scheduling.records import JobRecord
from millpond.scheduling.reserving.counted_reservations import admits_beside_reserved
from millpond.scheduling.state import State

MOST_MERGED: Final = 8
"""So many jobs leave a node for one that waits."""
JOBS_TRIED: Final = 64
"""So many running jobs are looked at for one that waits: a bound on work."""
MOVE_MILLI: Final = 100
"""What a move counts for each card beside what pairs lose, which lasts."""


class _NodeTrial:
    """One try on the trial ledger to make a node free enough for a job.

    Attributes:
        moved: who goes to idle cards of other nodes, and where.
        merged: who is to share the cards of others.
        placed: the place that the job gets; empty while it has none.
        lost: what all of them together lose by it, in milli of cards.
    """

    def __init__(self, state: State, placer: Placer, record: JobRecord, node: int) -> None:
        self._state = state
        self._placer = placer
        self._record = record
        self._here = np.zeros(state.cluster.arrays.node_count, dtype=np.uint8)
        self._here[node] = 1
        self.moved: list[tuple[JobRecord, Placed]] = []
        self.merged: list[JobRecord] = []
        self.placed: Placed = []
        self.lost = 0.0

    def move(self, job: JobRecord, mask: NodeMask | None) -> bool:
        """Let a job go to idle cards of another node; False, and nothing changed, if there are none."""
        journal = self._state.journal
        mark = journal.begin()
        hold_all(self._state, job, NOTHING)
        target = self._placer.place(job, both(1 - self._here, mask), tasks=job.tasks)
        if target is None:
            journal.rollback(mark)
            return False
        journal.commit()
        self.moved.append((job, target))
        self.lost += MOVE_MILLI * len(target[0][1].devices)
        self._place()
        return True

    def merge(self, guest: JobRecord, weight: float) -> None:
        """Let a job go to the cards of a partner, where both make ``weight`` together."""
        hold_all(self._state, guest, NOTHING)
        self.merged.append(guest)
        self.lost += guest.gpu_milli * (2.0 - weight)
        self._place()

    def _place(self) -> None:
        self.placed = self._placer.place(self._record, self._here) or []


class Merging:
    """Makes room within one state."""

    def __init__(self, state: State, placer: Placer, claims: Claims) -> None:
        self._state = state
        self._placer = placer
        self._claims = claims

    def make_room(self, record: JobRecord, expectation: PairExpectation) -> bool:
        """Ask others to come together for a job of one task that found no room; False if that would not do."""
        state = self._state
        if len(record.tasks) > 1 or record.elastic or record.job.is_background:
            return False
        if not admits_beside_reserved(state, record, record.amount):
            return False
        alone = list(islice(jobs_alone(state, record), JOBS_TRIED))
        mask = self._claims.mask(record)
        nodes = dict.fromkeys(held(job).node for job in alone if self._may_leave(job))
        tried = [self._try(record, node, alone, expectation) for node in nodes if mask is None or mask[node]]
        found = [trial for trial in tried if trial.placed]
        if found:
            self._ask(record, min(found, key=lambda trial: trial.lost))
        return bool(found)

    def _may_leave(self, job: JobRecord) -> bool:
        return may_be_asked(self._state, job) and job.id not in self._state.moves.by_job

    def _try(
        self, record: JobRecord, node: int, alone: Sequence[JobRecord], expectation: PairExpectation
    ) -> _NodeTrial:
        """How a node could be made free enough for a job; nothing is kept of the trial."""
        state = self._state
        there = [job for job in alone if held(job).node == node and self._may_leave(job)]
        trial = _NodeTrial(state, self._placer, record, node)
        mark = state.journal.begin()
        staying = []
        for job in sorted(there, key=lambda job: -job.gpu_milli):
            if trial.placed or not trial.move(job, self._claims.mask(job)):
                staying.append(job)
        free = {job.id for job in alone} - {job.id for job, _ in trial.moved}
        for weight, guest, host in self._pairs(staying, alone, expectation):
            if trial.placed or len(trial.merged) == MOST_MERGED:
                break
            if guest.id in free and host.id in free:
                free -= {guest.id, host.id}
                trial.merge(guest, weight)
        state.journal.rollback(mark)
        return trial

    def _pairs(
        self, guests: Sequence[JobRecord], hosts: Sequence[JobRecord], expectation: PairExpectation
    ) -> list[tuple[float, JobRecord, JobRecord]]:
        """Who could share whose cards, with what both are expected to make, those first that make most."""
        found = [
            (weight, guest, host)
            for guest in guests
            for host in hosts
            if host.gpu_milli == guest.gpu_milli
            and host is not guest
            and (weight := weight_of(self._state, expectation, guest, host))
        ]
        return sorted(found, key=lambda pair: -pair[0])

    def _ask(self, record: JobRecord, trial: _NodeTrial) -> None:
        state, leaving = self._state, [*(job for job, _ in trial.moved), *trial.merged]
        victims = tuple((job.id, job.attempt, ()) for job in leaving)
        self._claims.put(record.id, Claim(trial.placed, victims, Cause.PACKED))
        for job, target in trial.moved:
            self._claims.put(job.id, Claim(target, ((job.id, job.attempt, ()),), Cause.FITS))
        for job in leaving:
            state.moves.rest(job, state.now)
            runs.stop(state, job, Trigger.ENDED_FOR_RETRY, Cause.PACKED, for_job=record.id)
