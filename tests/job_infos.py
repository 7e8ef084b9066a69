"""A job as readers see it, for tests that are about a few of its fields."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from millpond.specs.api.jobs.jobs import JobInfo

_RUNNING: Final = JobInfo(
    id="job", name="", queue="default", pool="default", user="ada", kind="train", priority="normal", state="running",
    attempt=1, submitted_at=0.0,
)  # fmt: skip


def job_info(**fields: Any) -> JobInfo:
    """A job of ada's that runs and was submitted at 0, but for these fields."""
    return replace(_RUNNING, **fields)
