"""Room that is spoken for: exact places of jobs whose victims are leaving, and nodes kept for the reserved head."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from millpond.model.reasons import Cause
from millpond.model.workloads import JobState
from millpond.scheduling.placing import NodeMask, Placed
from millpond.scheduling.records import JobRecord
from millpond.scheduling.reserving import Reservation
from millpond.scheduling.state import State


@dataclass(frozen=True, slots=True)
class Claim:
    """The place a job gets once others have left it.

    Attributes:
        placed: its tasks and the holdings they will take.
        victims: ids and runs of the jobs that are leaving.
    """

    placed: Placed
    victims: tuple[tuple[str, int], ...]
    cause: Cause

    @property
    def nodes(self) -> tuple[int, ...]:
        """The nodes of the place."""
        return tuple(dict.fromkeys(holding.node for _, holding in self.placed))


class Claims:
    """All claims and the one reservation; makes the node masks that keep others out."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.by_job: dict[str, Claim] = {}
        self.reservation: Reservation | None = None
        self.reserved_at = -1
        """``Cluster.releases`` when the reservation was found."""
        self.reservation_binds = True
        """Whether the reservation keeps others out: in a walk it binds only those who come after its holder."""
        self.displaced_at = -1.0
        """The last instant at which running work was displaced; at one instant that happens in one cycle only."""
        self._mask: NodeMask | None = None
        self._stamp: tuple[int, int, int] | None = None

    def is_settled(self, job_id: str, claim: Claim) -> bool:
        """Whether all victims have left: ended, or suspended and confirmed to be."""
        if self._state.suspended and self._state.is_suspending_for(job_id):
            return False
        running = self._state.running
        for job, attempt in claim.victims:
            victim = running.get(job)
            if victim is not None and victim.attempt == attempt and victim.state is not JobState.SUSPENDED:
                return False
        return True

    def prune(self) -> None:
        """Forget what is kept for jobs that neither wait nor are about to, and claims on nodes that are gone."""
        nodes = self._state.cluster.nodes
        for job, claim in list(self.by_job.items()):
            if not self._waits(job) or any(nodes[node] is None for node in claim.nodes):
                del self.by_job[job]
        self._stamp = None
        if self.reservation is not None and not self._waits(self.reservation.job):
            self.reservation = None

    def _waits(self, job: str) -> bool:
        record = self._state.jobs.get(job)
        return record is not None and (bool(record.line) or record.state is JobState.STOPPING)

    def mask(self, record: JobRecord) -> NodeMask | None:
        """(nodes,), 0 where the job must stay out; None when it may go anywhere.

        Masks are kept between calls until ``prune``; claims are only added between two walks.
        """
        kept = self.reservation if self.keeps_out(record) else None
        if kept is None and not self.by_job:
            return None
        if record.id in self.by_job:
            return self._mask_without(record.id, kept)
        stamp = (len(self.by_job), id(kept), self._state.cluster.arrays.node_count)
        if stamp != self._stamp:
            self._mask, self._stamp = self._mask_without("", kept), stamp
        return self._mask

    def _mask_without(self, own: str, kept: Reservation | None) -> NodeMask:
        mask = np.ones(self._state.cluster.arrays.node_count, dtype=np.uint8)
        for job, claim in self.by_job.items():
            if job != own:
                mask[list(claim.nodes)] = 0
        if kept is not None:
            mask[list(kept.nodes)] = 0
        return mask

    def keeps_out(self, record: JobRecord) -> bool:
        """Whether the reservation alone keeps this job off its nodes."""
        kept = self.reservation if self.reservation_binds else None
        return kept is not None and kept.job != record.id and not self._is_over_by(record, kept.at)

    def _is_over_by(self, record: JobRecord, instant: float) -> bool:
        """Whether the job, started now, would almost surely have ended by then."""
        state = self._state
        return state.ordering.cautious_end(record, state.now) <= instant
