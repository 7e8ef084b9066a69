"""How many replicas a service should have: a pure function of what was measured, and the thread that applies it.

Each measured figure asks for as many replicas as would bring it to its target; the highest wish wins. Up at once, down
only to the highest wish of the last while, so that a short pause does not cost a start. Source of the rule: the
horizontal pod autoscaler of Kubernetes (algorithm details and stabilisation window).
"""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from millpond.model.errors import MillpondError
from millpond.model.events import DesiredCountChanged
from millpond.model.workloads import JobState, Kind, TaskState
from millpond.server.core import Core
from millpond.server.inbox import ChangeJob
from millpond.server.loop import Loop
from millpond.specs.job import JobFile
from millpond.specs.serving import Scale

log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 5.0
TOLERANCE: Final = 0.1
"""A figure that is off its target by less changes nothing."""
_ANSWER_WITHIN_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Load:
    """What was measured of a service since the last look.

    Attributes:
        requests_per_s: finished in all.
        latency_s: mean from a request's arrival to the end of its answer; 0 when none was finished.
        open_requests: now, in all.
    """

    requests_per_s: float
    latency_s: float
    open_requests: int


@dataclass(frozen=True, slots=True)
class Wish:
    """How many replicas were wished for at an instant."""

    at: float
    replicas: int


def wish(scale: Scale, load: Load, replicas: int) -> int:
    """How many replicas this load asks for; the highest of what its figures ask for.

    Args:
        replicas: how many there are.
    """
    ratios = [1.0 / replicas]  # with nothing to do, one is enough
    if scale.requests_per_s is not None:
        ratios.append(load.requests_per_s / (scale.requests_per_s * replicas))
    if scale.open_requests is not None:
        ratios.append(load.open_requests / (scale.open_requests * replicas))
    if scale.latency is not None:
        ratios.append(load.latency_s / scale.latency)
    highest = max(ratios)
    return replicas if abs(highest - 1.0) <= TOLERANCE else math.ceil(highest * replicas - 1e-9)


def desired(wishes: Sequence[Wish], now: float, down_after_s: float, bounds: tuple[int, int]) -> int:
    """How many replicas there should be.

    Args:
        wishes: of the past, the latest last; not empty.
        bounds: the fewest and the most.
    """
    lately = [each.replicas for each in wishes if each.at >= now - down_after_s]
    return min(max(max(lately, default=wishes[-1].replicas), bounds[0]), bounds[1])


class Autoscaler:
    """Looks after all services with a ``scale``, on a thread of its own.

    Args:
        file_of: the job file of a job.
        load_of: what was measured of a job since the last time it was asked for.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        loop: Loop,
        file_of: Callable[[str], JobFile],
        load_of: Callable[[str, float], Load],
        clock: Callable[[], float],
    ) -> None:
        self._loop = loop
        self._file_of = file_of
        self._load_of = load_of
        self._clock = clock
        self._wishes: dict[str, deque[Wish]] = {}
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="autoscaler", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """No more looks."""
        self._closed.set()

    def look(self) -> None:
        """Look at each service once, and change what is to be changed."""
        services = [
            job.id
            for job in self._loop.board.newest_first()
            if job.kind == Kind.SERVICE and job.state == JobState.RUNNING
        ]
        for gone in self._wishes.keys() - set(services):
            del self._wishes[gone]
        for job in services:
            file = self._file_of(job)
            if file.serve is not None and file.serve.scale is not None:
                self._look_at(job, file, file.serve.scale)

    def _run(self) -> None:
        while not self._closed.wait(LOOK_EVERY_S):
            if not self._loop.alive:
                return
            self.look()

    def _look_at(self, job: str, file: JobFile, scale: Scale) -> None:
        (role,) = file.all_roles()
        info = self._loop.board.get(job)
        if info is None or role.tasks is None:
            return
        now = self._clock()
        running = max(1, sum(task.state == TaskState.RUNNING for task in info.tasks))
        wishes = self._wishes.setdefault(job, deque())
        wishes.append(Wish(now, wish(scale, self._load_of(job, now), running)))
        while wishes[0].at < now - scale.down_after:
            wishes.popleft()
        wanted = desired(wishes, now, scale.down_after, (role.tasks.min, role.tasks.max))
        if wanted != self._loop.ask(lambda core: _desired_now(core, job)).result(_ANSWER_WITHIN_S):
            self._change(job, role.name, wanted)

    def _change(self, job: str, role: str, wanted: int) -> None:
        def change(_record: object, now: float) -> DesiredCountChanged:
            return DesiredCountChanged(now, job, role, wanted)

        try:
            self._loop.change_job(ChangeJob(job, change)).result(_ANSWER_WITHIN_S)
        except MillpondError as error:
            log.info("%s stays as it is: %s", job, error)  # it ended meanwhile


def _desired_now(core: Core, job: str) -> int | None:
    """How many replicas a service should have by now; None when it has ended."""
    record = core.scheduler.jobs.get(job)
    return None if record is None else record.job.roles[0].desired
