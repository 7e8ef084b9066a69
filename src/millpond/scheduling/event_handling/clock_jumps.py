"""The clock was set forward: what is counted in seconds does not count those that never passed.

Instants on a clock (windows, closures) follow the clock as it is.
"""

from __future__ import annotations

from millpond.scheduling.state import State


def skip(state: State, seconds: float) -> None:
    """The last ``seconds`` up to now have not passed: what runs or is suspended began so much later, as it were."""
    for record in state.running.values():
        if record.began_at is not None:
            record.suspended_s += seconds
        if record.started_at is not None:
            record.started_at += seconds
        if record.id in state.suspended:
            record.suspended_at += seconds
            record.left_at = record.suspended_at
            record.ready_at += seconds
        if record.kept is not None and record.kept.kept_until is not None:
            record.kept.kept_until += seconds
        if record.slot >= 0:
            state.enroll(record)
    state.caps.skip(seconds)
    state.usage.skip(seconds)
    state.preemption_budget.since += seconds
