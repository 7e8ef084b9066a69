"""Jobs that wait for a node which holds what they need, although there is room on others that would fetch it.

A job of one task waits if by what is expected it is under way sooner so: if a node is free of others, and has fetched
what it lacks, before the node where there is room has. It waits as long as that node would fetch, at the most, counted
from the first time; then it takes what there is. Meanwhile the room is for all others. Where an ordering is strict, and
who waits would hold others up, or where a job is overdue, it does not wait.

Source: Zaharia et al., "Delay Scheduling", EuroSys 2010; the bound is the transfer that is saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from millpond.scheduling.cycle.claims import Claims
from millpond.scheduling.cycle.job_placement import Placed
from millpond.scheduling.cycle.reservations import Reserver
from millpond.scheduling.placement.nearest_contents import same_fetch_up_to
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State


@dataclass(frozen=True, slots=True)
class FetchWait:
    """A job that had better wait.

    Attributes:
        until: no longer than this.
        node: which node it waits for, by index.
        free_at: when that should be free.
        fetch_s: how long it would fetch where there is room now.
    """

    until: float
    node: int
    free_at: float
    fetch_s: float


class FetchWaits:
    """Says which jobs of one state wait; ``State.fetch_waits`` has until when those do that have begun."""

    def __init__(self, state: State, claims: Claims, reserver: Reserver) -> None:
        self._state = state
        self._claims = claims
        self._reserver = reserver

    def find(self, record: JobRecord, placed: Placed) -> FetchWait | None:
        """Why a job should not keep a place that it has taken; None: it should."""
        state, now = self._state, self._state.now
        seconds = state.cluster.contents.fetch_s(record.job.contents) if record.job.contents else None
        if seconds is None or len(record.tasks) != 1 or record.overdue:
            return None
        if state.ordering.strict or (record.group is not None and state.orderings.of(record.group).strict):
            return None
        fetch_s = float(seconds[placed[0][1].node])
        until = state.fetch_waits.get(record.id, now + fetch_s)
        if until <= now or fetch_s <= same_fetch_up_to(0.0, record.expected_s or 0.0):
            return None
        nearer, mask = seconds < fetch_s, self._claims.mask(record)
        if mask is not None:
            nearer &= mask[: len(nearer)] != 0
        if not nearer.any():
            return None
        free_at = self._reserver.soonest_by_node(record, np.flatnonzero(nearer).tolist())
        free_at = np.where(free_at <= until, free_at, np.inf)
        node = int(np.argmin(free_at + seconds))
        if free_at[node] + seconds[node] >= now + fetch_s:
            return None
        return FetchWait(until, node, float(free_at[node]), fetch_s)

    def keep(self, waits: Sequence[tuple[str, float]]) -> None:
        """These wait until then; those who did before do so no longer for it."""
        state = self._state
        state.begun_fetch_waits = {job: until for job, until in waits if job not in state.fetch_waits}
        state.fetch_waits |= state.begun_fetch_waits
        state.fetch_waits_version += bool(state.begun_fetch_waits)

    def prune(self) -> None:
        """Forget those that no longer wait."""
        state = self._state
        for job in [job for job in state.fetch_waits if job not in state.jobs or not state.jobs[job].line]:
            del state.fetch_waits[job]
