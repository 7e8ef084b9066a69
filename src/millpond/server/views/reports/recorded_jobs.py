"""Jobs of the past as a policy is tried on them. Apart from what reads them out of the store, as the child process that
plays them again needs nothing of that, and to load it takes a third of its start.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from millpond.forecasting.durations import Forecast
from millpond.model.workloads import Job

NEVER_RAN: Final = "never ran"
"""Why jobs are left out that ended before they had cards."""


@dataclass(frozen=True, slots=True)
class RecordedJob:
    """A job that ended, or one that runs still.

    Attributes:
        length_s: how long it runs when nothing disturbs it; so far, where it runs still.
        ended_at: when it ended on this server; infinite where it has not.
        started_at: when its last run began.
        forecast: what was predicted of its length when it came.
    """

    job: Job
    submitted_at: float
    length_s: float
    ended_at: float
    started_at: float
    forecast: Forecast | None = None


@dataclass(frozen=True, slots=True)
class Recorded:
    """Jobs that were submitted in a span of time and have ended, by submission.

    Attributes:
        left_out: how many are missing among them, by the reason.
        earlier: jobs that were submitted before that and have ended.
        running: jobs that run still, whenever they were submitted.
    """

    jobs: list[RecordedJob]
    left_out: dict[str, int]
    earlier: list[RecordedJob] = field(default_factory=list)
    running: list[RecordedJob] = field(default_factory=list)
