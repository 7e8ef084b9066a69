"""Why a job that may start later is in no line yet: cheaper or cleaner hours are to come."""

from __future__ import annotations

from millpond.model.energy import RateMeasure
from millpond.model.reasons import Cause, Reason, Remedy, StartEstimate
from millpond.scheduling.records import JobRecord
from millpond.scheduling.shifting.choosing_starts import latest_line_up
from millpond.scheduling.state import State


def held_start(state: State, record: JobRecord) -> StartEstimate:
    """When a held job should start: there should be room for it then, and it lines up no later than it may."""
    until = record.held_until
    return StartEstimate(until, max(latest_line_up(state, record), until), "", likely_at=until)


def why_held(state: State, record: JobRecord) -> Reason:
    """The reason of a held job; ``lines_up_by`` is the latest instant at which it is held no longer."""
    measure = state.held.predicted.measure
    hours = "cheaper" if measure is RateMeasure.PRICE else "cleaner"
    until = record.held_until
    return Reason(
        Cause.CHEAPER_HOURS,
        f"it waits for {hours} hours",
        (("lines_up_by", int(max(latest_line_up(state, record), until))),),
        remedy=Remedy(f"let it start now: `pond resume {record.id}`", "", ""),
        start=StartEstimate(until, None, "it lines up then, as cards should be free for it"),
        opens_at=until,
    )
