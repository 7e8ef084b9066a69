"""Room that is spoken for: nodes kept for a job whose victims are leaving, and for the reserved head of the line."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from millpond.scheduling.placing import NodeMask
from millpond.scheduling.records import JobRecord
from millpond.scheduling.reserving import Reservation
from millpond.scheduling.state import State


@dataclass(frozen=True, slots=True)
class Claim:
    """Nodes on which others are being ended for a job.

    Attributes:
        victims: ids and attempts of the jobs that are leaving.
    """

    nodes: tuple[int, ...]
    victims: tuple[tuple[str, int], ...]


class Claims:
    """All claims and the one reservation; makes the node masks that keep others out."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.by_job: dict[str, Claim] = {}
        self.reservation: Reservation | None = None

    def is_settled(self, claim: Claim) -> bool:
        """Whether all victims have left."""
        running = self._state.running
        for job, attempt in claim.victims:
            victim = running.get(job)
            if victim is not None and victim.attempt == attempt:
                return False
        return True

    def prune(self) -> None:
        """Forget claims and reservations of jobs that no longer wait."""
        jobs = self._state.jobs
        for job in [job for job in self.by_job if job not in jobs or not jobs[job].line]:
            del self.by_job[job]
        kept = self.reservation
        if kept is not None and (kept.job not in jobs or not jobs[kept.job].line):
            self.reservation = None

    def mask(self, record: JobRecord) -> NodeMask | None:
        """(nodes,), 0 where the job must stay out; None when it may go anywhere."""
        kept = self.reservation
        if kept is not None and (kept.job == record.id or self._is_over_by(record, kept.at)):
            kept = None
        if kept is None and (not self.by_job or (len(self.by_job) == 1 and record.id in self.by_job)):
            return None
        mask = np.ones(self._state.cluster.arrays.node_count, dtype=np.uint8)
        for job, claim in self.by_job.items():
            if job != record.id:
                mask[list(claim.nodes)] = 0
        if kept is not None:
            mask[list(kept.nodes)] = 0
        return mask

    def _is_over_by(self, record: JobRecord, instant: float) -> bool:
        """Whether the job, started now, would almost surely have ended by then."""
        state = self._state
        return state.ordering.cautious_end(record, state.now) <= instant
