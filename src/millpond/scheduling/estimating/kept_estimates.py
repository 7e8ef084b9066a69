"""Estimates that are kept while the state is as it was, and, for those who allow it, for some seconds longer.

Many ask at once why their jobs wait. What all their answers begin with, the order of the jobs and the futures of a
pool, is found once. On a busy cluster something happens many times a second; where that is the usual coming and going
alone, an estimate may be some seconds old, and says so.
"""

from __future__ import annotations

from typing import Final

from millpond.model.events import (
    Confirmed,
    DurationPredicted,
    Ended,
    Event,
    JobSubmitted,
    LoadSampled,
    ProgressMeasured,
)
from millpond.scheduling.cycle.claims import Claims
from millpond.scheduling.cycle.job_placement import Placer
from millpond.scheduling.estimating.estimate import StartEstimates
from millpond.scheduling.estimating.line_order import LineOrder
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State

FEW_WAITING: Final = 200
"""Where no more wait, all is found anew: that is quick, and a person looks at what a change has done."""

_USUAL: Final = (Confirmed, DurationPredicted, Ended, JobSubmitted, LoadSampled, ProgressMeasured)


class KeptEstimates:
    """The latest estimates of a scheduler."""

    def __init__(self, state: State, placer: Placer, claims: Claims) -> None:
        self._state = state
        self._placer = placer
        self._claims = claims
        self._latest: StartEstimates | None = None
        self._has_changed = False

    def note_event(self, event: Event) -> None:
        """Something has happened."""
        self._has_changed = True
        if not isinstance(event, _USUAL):
            self._latest = None

    def note_cycle(self) -> None:
        """Something may have been decided."""
        self._has_changed = True

    def of(self, record: JobRecord, within_s: float) -> StartEstimates:
        """Estimates that know a job which stands in a line, of so many seconds ago at most."""
        latest, state = self._latest, self._state
        if latest is not None and record in latest.order:
            age_s = state.now - latest.as_of
            if age_s == 0.0 and not self._has_changed:
                return latest
            if age_s < within_s and state.waiting.count > FEW_WAITING:
                return latest
        self._latest = latest = StartEstimates(state, self._placer, self._order())
        self._has_changed = False
        return latest

    def _order(self) -> LineOrder:
        """All that wait, in order, while quotas count what is claimed."""
        mark = self._state.journal.begin()
        self._claims.charge(1)
        order = LineOrder(self._state)
        self._state.journal.rollback(mark)
        return order
