"""Jobs of the past as a policy is tried on them. Apart from what reads them out of the store, as the child process that
plays them again needs nothing of that, and to load it takes a third of its start.
"""

from __future__ import annotations

from dataclasses import dataclass

from millpond.model.workloads import Job


@dataclass(frozen=True, slots=True)
class RecordedJob:
    """A job that ended.

    Attributes:
        length_s: how long it runs when nothing disturbs it.
        ended_at: when it ended on this server.
    """

    job: Job
    submitted_at: float
    length_s: float
    ended_at: float


@dataclass(frozen=True, slots=True)
class Recorded:
    """Jobs that ended, and how many are missing among them, by the reason."""

    jobs: list[RecordedJob]
    left_out: dict[str, int]
