"""What is told of the length of a job, and what a preemption adds to it."""

from __future__ import annotations

from millpond.scheduling.records import JobRecord

NEVER = float("inf")

TRUSTED_SPREAD = 3.0
"""A forecast is trusted if its cautious length is at most so many times the expected one."""


def forecast_s(record: JobRecord) -> float:
    """Length of the whole run by a forecast that can be trusted; ``NEVER`` when there is none.

    A forecast whose cautious length is far above the expected one says little more than that nothing is known.
    """
    expected, cautious = record.expected_s, record.cautious_s
    if expected is None or cautious is None or cautious > TRUSTED_SPREAD * expected:
        return NEVER
    return expected


def is_exact(record: JobRecord) -> bool:
    """Whether the forecast claims to be certain."""
    return record.expected_s is not None and record.cautious_s == record.expected_s


def debt_s(record: JobRecord, now: float) -> float:
    """Seconds of the present or next run that go into catching up after a preemption, not into progress."""
    if record.started_at is None:
        return record.debt_s
    return max(record.debt_s - (now - record.started_at), 0.0)
