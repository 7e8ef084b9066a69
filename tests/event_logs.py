"""Replaying an event log: the same events give the same decisions, whichever world wrote them."""

from __future__ import annotations

from collections.abc import Iterable

from millpond.model.decisions import Decision
from millpond.model.events import Event, Tick
from millpond.simulation.kernel import SchedulerInterface


def replay_log(events: Iterable[Event], scheduler: SchedulerInterface) -> list[Decision]:
    """Every decision that ``scheduler``, which must be fresh, takes on this log; it decides at each ``Tick``."""
    decisions: list[Decision] = []
    for event in events:
        if isinstance(event, Tick):
            decisions.extend(scheduler.decide(event.at))
        else:
            scheduler.handle(event)
    return decisions
