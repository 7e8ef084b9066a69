"""Recorded jobs for a child process that plays them again: as they come in the play, and as plain data."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from millpond.forecasting.durations import Forecast
from millpond.model.codec import from_plain, to_plain
from millpond.server.views.reports.recorded_jobs import Recorded, RecordedJob
from millpond.simulation.trace import TraceJob
from millpond.simulation.what_if.plays import PastJob


def past_jobs(recorded: Recorded, begin: float, until: float) -> list[PastJob]:
    """The jobs of a span, and what held cards or waited in it besides, by the instant at which they come."""
    running = (job for job in recorded.running if job.started_at < until)
    others = [*(job for job in recorded.earlier if job.ended_at > begin), *running]
    past = [
        *(PastJob(_carried_in(job, begin, until), job.forecast, counts=False) for job in others),
        *(PastJob(_entry(job, job.submitted_at, job.length_s), job.forecast, counts=True) for job in recorded.jobs),
    ]
    return sorted(past, key=lambda each: each.entry.submit_at)


def past_plain(past: Iterable[PastJob]) -> list[Any]:
    """Jobs of the past for a child, as ``past_of`` reads them."""
    return [_plain(each) for each in past]


def past_of(plain: Iterable[Any]) -> list[PastJob]:
    """What ``past_plain`` wrote."""
    return [_past_job(each) for each in plain]


def _entry(job: RecordedJob, at: float, length_s: float) -> TraceJob:
    return TraceJob(job.job, at, length_s, job.job.id)


def _carried_in(job: RecordedJob, begin: float, until: float) -> TraceJob:
    """A job that held cards, or waited, when the days began, or that runs still.

    What ran comes when its run began, as then it had the cards: but not much before the days, in which it had them too.
    What waited comes as they begin, in the order of submission.
    """
    if job.started_at >= begin and job.ended_at < math.inf:
        return _entry(job, begin, job.length_s)
    at = max(job.started_at, begin - (until - begin))
    return _entry(job, at, max(min(job.ended_at, until) - at, 1.0))


def _plain(each: PastJob) -> list[Any]:
    entry, forecast = each.entry, each.forecast
    guess = None if forecast is None else [forecast.expected_s, forecast.cautious_s]
    return [to_plain(entry.job), entry.submit_at, entry.duration_s, guess, each.counts]


def _past_job(plain: list[Any]) -> PastJob:
    job, at, length_s, guess, counts = plain
    made = from_plain(job)
    return PastJob(TraceJob(made, at, length_s, made.id), None if guess is None else Forecast(*guess), counts)
