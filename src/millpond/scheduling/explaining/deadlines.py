"""Whether a job should end by its deadline: the estimate of its start, and what is known of its length.

A start and a length that are both late are rarer than either; their sum is still the bound that is told, as work that
comes late tends to be work that was longer than foreseen, on both sides.
"""

from __future__ import annotations

from millpond.model.reasons import DeadlineOutlook, DeadlineVerdict, StartEstimate
from millpond.scheduling.estimating.lengths import LEAST_ENDED
from millpond.scheduling.ordering.forecasts import NEVER, forecast_s
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State


def outlook_of(state: State, record: JobRecord, start: StartEstimate | None) -> DeadlineOutlook | None:
    """What is foreseen of a job's end; None for one without a deadline, or that has ended.

    Args:
        start: when it should start; None for one that runs.
    """
    deadline = record.job.deadline_s
    if deadline is None or record.state.ended:
        return None
    if state.now > deadline:
        return DeadlineOutlook(DeadlineVerdict.MISSED, deadline)
    likely, latest, unknown = _length(state, record)
    if record.id not in state.running:
        if start is None:
            return DeadlineOutlook(DeadlineVerdict.AT_RISK, deadline, unknown="when it starts")
        if start.unknown:
            return DeadlineOutlook(DeadlineVerdict.AT_RISK, deadline, unknown=f"when it starts ({start.unknown})")
        likely = None if likely is None or start.likely_at is None else likely + start.likely_at - state.now
        latest = None if latest is None or start.latest_at is None else latest + start.latest_at - state.now
        unknown = unknown or ("when it starts at the latest" if latest is None else "")
    elif record.id in state.suspended:
        return DeadlineOutlook(DeadlineVerdict.AT_RISK, deadline, unknown="when it goes on")
    verdict = DeadlineVerdict.ACCEPT if latest is not None and latest <= deadline else DeadlineVerdict.AT_RISK
    return DeadlineOutlook(verdict, deadline, likely, latest, unknown)


def _length(state: State, record: JobRecord) -> tuple[float | None, float | None, str]:
    """When a job ends that runs from now on: likely, and at the latest; and what is not known of that."""
    time_left = state.ordering.time_left
    if forecast_s(record) < NEVER or time_left.survival.endings >= LEAST_ENDED:
        return time_left.expected_end(record, state.now), time_left.cautious_end(record, state.now), ""
    if record.job.time_limit_s is not None:
        left = max(record.job.time_limit_s - record.service_s(state.now), 0.0) + record.debt_s
        return None, state.now + left, ""
    return None, None, "how long it runs"
