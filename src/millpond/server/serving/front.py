"""State shared by the proxy and those who change services: measurements, open requests, routes, waiting requests."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from millpond.model.amounts import count_text
from millpond.model.errors import ConflictError, MillpondError
from millpond.model.events import DesiredCountChanged
from millpond.model.states import JobState
from millpond.scheduling.records import JobRecord
from millpond.server.runtime.clock import since_boot
from millpond.server.runtime.inbox import ChangeJob
from millpond.server.runtime.loop import Loop
from millpond.server.serving.proxy.load_balancer import Balancer
from millpond.server.serving.proxy.request_meter import ProxyMeter
from millpond.server.serving.proxy.request_queue import RequestQueue
from millpond.server.serving.routing import Routes
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.job.job_file import JobFile

log = logging.getLogger(__name__)

WAKE_WITHIN_S: Final = 30.0


class ServiceFront:
    """The state of all services that lasts as long as this server.

    Args:
        file_of: the job file of a job.
    """

    def __init__(self, loop: Loop, file_of: Callable[[str], JobFile]) -> None:
        self._loop = loop
        self._file_of = file_of
        self.meter = ProxyMeter(since_boot)
        self.balancer = Balancer()
        self.routes = Routes()
        self.queue = RequestQueue(self.wake, self._woken)

    def with_deadline(self, info: JobInfo) -> JobInfo:
        """A job with the deadline of the requests that wait for it, if any do."""
        left_s = self.queue.waits_for_s(info.id)
        return info if left_s is None else replace(info, requests_wait_until=time.time() + left_s)

    async def wake(self, job: str) -> bool:
        """Have a job that is at rest get a replica; says whether it was at rest."""
        info = self._loop.job_cache.get(job)
        if (
            info is None
            or not info.scaled_to_zero
            or not (await asyncio.to_thread(self._file_of, job)).may_scale_to_zero
        ):
            return False
        change = ChangeJob(job, lambda record, now: _waking(record, now))
        try:
            await asyncio.wait_for(asyncio.wrap_future(self._loop.change_job(change)), WAKE_WITHIN_S)
        except (MillpondError, TimeoutError) as error:
            log.info("%s was not woken: %s", job, error)  # another request did, or it ended; the request tries again
            return False
        return True

    def _woken(self, job: str, after_s: float, waited: int) -> None:
        self.meter.woken(job, after_s)
        self._loop.note(job, f"ready {after_s:.1f} s after a request woke it; {count_text(waited, 'request')} waited")


def _waking(record: JobRecord, now: float) -> DesiredCountChanged:
    if not record.scaled_to_zero:
        raise ConflictError(f"job {record.id!r} is awake", "ask again")
    role = record.job.roles[0]
    # Those that were swapped are there, and come back together; else the first is started.
    desired = role.desired if record.state is JobState.SUSPENDED else 1
    return DesiredCountChanged(now, record.id, role.name, desired, "a request came")
