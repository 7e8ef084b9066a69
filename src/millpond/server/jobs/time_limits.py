"""How much of its time limit each job has left."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, replace

from millpond.server.runtime.active_jobs.job_cache import limit_ends_at
from millpond.server.runtime.clock import on_wall_clock
from millpond.server.runtime.core import Core
from millpond.server.runtime.loop import Loop
from millpond.specs.api.jobs.jobs import JobInfo


@dataclass(frozen=True, slots=True)
class LimitLeft:
    """What is left of a time limit.

    Attributes:
        seconds: of service; a suspended job uses none of them.
        limit_s: the whole time limit.
        ends_at: when it ends by the wall clock if it runs on; None while it has no run.
    """

    seconds: float
    ends_at: float | None
    limit_s: float


def with_limit_end(loop: Loop, info: JobInfo) -> JobInfo:
    """A job with the end of its time limit by the wall clock, of which the scheduler's may be ahead."""
    if info.limit_ends_at is None:
        return info
    return replace(info, limit_ends_at=on_wall_clock(info.limit_ends_at, loop.now, time.time()))


async def time_left(loop: Loop, jobs: Collection[str]) -> dict[str, LimitLeft]:
    """What is left to those of these jobs that have a time limit and have not ended; limits can be extended."""
    return await loop.ask(lambda core: limits_left(core, jobs, time.time())) if jobs else {}


def limits_left(core: Core, jobs: Collection[str], wall: float) -> dict[str, LimitLeft]:
    """The same, for the scheduler's thread.

    Args:
        wall: what the wall clock shows, of which the scheduler's may be ahead.
    """
    found: dict[str, LimitLeft] = {}
    for job in jobs:
        record = core.scheduler.jobs.get(job)
        if record is None or record.state.ended or record.job.time_limit_s is None:
            continue
        limit_s = record.job.time_limit_s
        left_s = max(limit_s - record.service_s(core.now), 0.0)
        ends_at = limit_ends_at(record)
        shown = None if ends_at is None else on_wall_clock(ends_at, core.now, wall)
        found[job] = LimitLeft(left_s, shown, limit_s)
    return found
