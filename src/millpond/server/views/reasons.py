"""Reasons of jobs and prospects of their deadlines as the API shows them."""

from __future__ import annotations

from millpond.model.reasons import Cause, DeadlineOutlook, Reason, StartEstimate
from millpond.model.states import JobState
from millpond.server.wording import local_time
from millpond.specs.api.jobs.jobs import DeadlineInfo
from millpond.specs.api.jobs.reasons import ReasonInfo, RemedyInfo, StartInfo


def reason_info(job: str, state: JobState, reason: Reason) -> ReasonInfo:
    """Why a job waits or runs."""
    remedy, start = reason.remedy, reason.start
    return ReasonInfo(
        job=job,
        state=state.value,
        cause=reason.cause.value,
        summary=summary_of(reason),
        numbers=dict(reason.numbers),
        nodes={failed.value: count for failed, count in reason.nodes},
        position=reason.position,
        remedy=RemedyInfo(change=remedy.change, field=remedy.field, value=remedy.value) if remedy else None,
        start=None if start is None else _start_info(start),
        blocked_by=reason.blocked_by,
        opens_at=reason.opens_at,
    )


def deadline_info(outlook: DeadlineOutlook) -> DeadlineInfo:
    """An outlook as the API shows it."""
    return DeadlineInfo(
        at=outlook.deadline_at,
        verdict=outlook.verdict.value,
        likely_end_at=outlook.likely_end_at,
        latest_end_at=outlook.latest_end_at,
        unknown=outlook.unknown,
    )


def _start_info(start: StartEstimate) -> StartInfo:
    return StartInfo(
        earliest_at=start.earliest_at,
        latest_at=start.latest_at,
        basis=start.basis,
        likely_at=start.likely_at,
        unknown=start.unknown,
    )


def summary_of(reason: Reason) -> str:
    """A reason in words; the core knows seconds, people know the time of day."""
    if reason.cause in (Cause.WINDOW_CLOSED, Cause.LENDING_OVER) and reason.opens_at is not None:
        return f"{reason.summary}; opens {local_time(reason.opens_at)}"
    if reason.cause is Cause.CHEAPER_HOURS and reason.opens_at is not None:
        latest = local_time(dict(reason.numbers)["lines_up_by"])
        return f"{reason.summary} until {local_time(reason.opens_at)}; it lines up by {latest} at the latest"
    if reason.cause is Cause.RESERVATION and reason.opens_at is not None:
        # Of one that has not begun it is the begin, and nothing is counted; of others, the end.
        return f"{reason.summary}; {'until' if reason.numbers else 'that is'} {local_time(reason.opens_at)}"
    if reason.cause is Cause.KEPT and reason.opens_at is not None:
        return f"{reason.summary} until {local_time(reason.opens_at)}"
    if reason.cause is not Cause.NODES_CLOSED:
        return reason.summary
    if reason.opens_at is None:
        return f"{reason.summary}; open again when uncordoned"
    return f"{reason.summary}; open again {local_time(reason.opens_at)}"
