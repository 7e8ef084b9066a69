"""State shared by the proxy and those who change services: measurements, open requests, routes, waiting requests."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

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
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.job.job_file import JobFile

log = logging.getLogger(__name__)

WAKE_WITHIN_S: Final = 30.0
SEED: Final = 20_240_229
_HUNDRED: Final = 100.0

Ways: TypeAlias = tuple[tuple[str, ...], ...]
"""Groups of jobs whose replicas may answer a request, each for when the one before has none that is ready."""


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


@dataclass(frozen=True, slots=True)
class Split:
    """How the requests for a service are divided.

    Attributes:
        jobs: whose ready replicas share what the canary does not get.
        canary: the job that gets ``percent`` of the requests; empty when none.
    """

    jobs: tuple[str, ...]
    canary: str = ""
    percent: float = 0.0


class Routes:
    """Looked up by the proxy, changed by rollouts. Any thread.

    Each request is decided by itself, by a generator with a seed: a client may get the canary once and not again.
    """

    def __init__(self, seed: int = SEED) -> None:
        self._random = random.Random(seed)
        self._by_address: dict[str, Split] = {}

    def put(self, address: str, split: Split) -> None:
        """From now on an address is answered so."""
        self._by_address[address] = split

    def ways(self, address: str) -> Ways:
        """Who is to answer one request."""
        split = self._by_address.get(address)
        if split is None:
            return ((address,),)
        if not split.canary:
            return (split.jobs,)
        mine = ((split.canary,), split.jobs)
        return mine if self._random.random() * _HUNDRED < split.percent else mine[::-1]

    def present(self, address: str) -> str:
        """The job that stands for an address: the first that answers there."""
        split = self._by_address.get(address)
        return address if split is None else split.jobs[0]
