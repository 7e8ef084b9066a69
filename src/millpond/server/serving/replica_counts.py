"""Change the number of replicas of a service without losing a request.

More replicas are asked for at once. Those that are one too many first get no new requests; they are ended when they
have answered what they were asked, or when the time for that is over. So a change to fewer is asked for again and
again, without waiting, until it is done.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from millpond.model.errors import MillpondError
from millpond.model.events import DesiredCountChanged
from millpond.model.states import TaskState
from millpond.node.host.clocks import MonotonicClock
from millpond.node.task.records import TaskId
from millpond.scheduling.records import JobRecord
from millpond.server.runtime.core import Core
from millpond.server.runtime.inbox import ChangeJob
from millpond.server.runtime.loop import Loop
from millpond.server.serving.proxy.load_balancer import Balancer
from millpond.specs.api.jobs.jobs import JobInfo

log = logging.getLogger(__name__)

_ACTIVE: Final = (TaskState.STARTING, TaskState.RUNNING)


@dataclass(frozen=True, slots=True)
class Goal:
    """How many replicas a service should have, and why, in a clause.

    Attributes:
        swap: if it should have none, those that there are move to host memory if they can.
    """

    replicas: int
    why: str
    swap: bool = False


class Sizing:
    """Changes numbers of replicas; for one thread."""

    def __init__(self, loop: Loop, balancer: Balancer, clock: MonotonicClock) -> None:
        self._loop = loop
        self._balancer = balancer
        self._clock = clock
        self._retired: dict[str, tuple[int, float]] = {}

    def now(self, job: str) -> int | None:
        """How many replicas a service should have by now: 0 at rest, None when it has ended."""
        return self._loop.look_up(lambda core: desired_now(core, job))

    def pursue(self, job: JobInfo, goal: Goal, drain_s: float, is_wanted: Callable[[], bool] = lambda: False) -> None:
        """Bring a service nearer to a number of replicas; does not wait for requests to end.

        Args:
            drain_s: how long replicas that are one too many may go on answering.
            is_wanted: asked when replicas get no new requests any more; true calls the change off.
        """
        present = self.now(job.id)
        if present is None or goal.replicas >= present:
            self.call_off(job.id)
            if present is not None and goal.replicas > present:
                self._change(job.id, goal)
            return
        target, since = self._retired.get(job.id, (-1, 0.0))
        self._balancer.retire(job.id, leaving(job, goal.replicas))
        if target != goal.replicas:
            since = self._clock()
            self._retired[job.id] = (goal.replicas, since)
        if is_wanted():
            self.call_off(job.id)
        elif self._balancer.is_quiet(job.id) or self._clock() >= since + drain_s:
            self._change(job.id, goal)
            self.call_off(job.id)

    def call_off(self, job: str) -> None:
        """All replicas that there are get requests again."""
        if self._retired.pop(job, None) is not None:
            self._balancer.retain(job)

    def _change(self, job: str, goal: Goal) -> None:
        def change(record: JobRecord, now: float) -> DesiredCountChanged:
            return DesiredCountChanged(now, job, record.job.roles[0].name, goal.replicas, goal.why, goal.swap)

        try:
            self._loop.wait_for(self._loop.change_job(ChangeJob(job, change)))
        except MillpondError as error:
            log.info("%s stays as it is: %s", job, error)  # it ended meanwhile
            return
        # The change is durable before its decisions are taken: until then the replicas are still shown as running.
        self._balancer.end(self._loop.look_up(lambda core: _ending(core, job)))


def leaving(job: JobInfo, replicas: int) -> frozenset[TaskId]:
    """Which replicas the scheduler ends when there should be so many: those that wait first, then the last ones."""
    active = sorted(task.task for task in job.tasks if task.state in _ACTIVE)
    return frozenset(TaskId(job.id, job.attempt, number) for number in active[replicas:])


def _ending(core: Core, job: str) -> frozenset[TaskId]:
    """The replicas of a service's present run that do not come back."""
    record = core.scheduler.jobs.get(job)
    if record is None:
        return frozenset()
    # At rest, none is one too many; those that are swapped come back as they are.
    at_rest = bool(record.scaled_to_zero)
    ending = (task for task in record.tasks if task.surplus or (at_rest and task.state is TaskState.STOPPING))
    return frozenset(TaskId(job, record.attempt, task.number) for task in ending)


def desired_now(core: Core, job: str) -> int | None:
    """How many replicas a service should have by now: 0 at rest, None when it has ended."""
    record = core.scheduler.jobs.get(job)
    if record is None or record.state.ended:
        return None
    return 0 if record.scaled_to_zero else record.job.roles[0].desired
