"""How much of its time limit each job has left."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from millpond.server.runtime.active_jobs.job_cache import limit_ends_at
from millpond.server.runtime.core import Core
from millpond.server.runtime.loop import Loop


@dataclass(frozen=True, slots=True)
class LimitLeft:
    """What is left of a time limit.

    Attributes:
        seconds: of service; a suspended job uses none of them.
        limit_s: the whole time limit.
        ends_at: when it ends if it runs on; None while it has no run.
    """

    seconds: float
    ends_at: float | None
    limit_s: float


async def time_left(loop: Loop, jobs: Collection[str]) -> dict[str, LimitLeft]:
    """What is left to those of these jobs that have a time limit and have not ended; limits can be extended."""
    return await loop.ask(lambda core: limits_left(core, jobs)) if jobs else {}


def limits_left(core: Core, jobs: Collection[str]) -> dict[str, LimitLeft]:
    """The same, for the scheduler's thread."""
    found: dict[str, LimitLeft] = {}
    for job in jobs:
        record = core.scheduler.jobs.get(job)
        if record is None or record.state.ended or record.job.time_limit_s is None:
            continue
        limit_s = record.job.time_limit_s
        left_s = max(limit_s - record.service_s(core.now), 0.0)
        found[job] = LimitLeft(left_s, limit_ends_at(record), limit_s)
    return found
