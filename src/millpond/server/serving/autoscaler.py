"""How many replicas a service should have: a pure function of what was measured, and the thread that applies it.

Each measured figure asks for as many replicas as would bring it to its target; the highest number wins. Up at once,
down only to the highest number of the last while, so that a short pause does not cost a start. Source of the rule: the
horizontal pod autoscaler of Kubernetes (algorithm details and stabilisation window). A service that may go without
replicas has none once no request has come for a while; its next request wakes it (``proxy.request_queue``).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from sqlalchemy.exc import DBAPIError

from millpond.forecasting.series import NoForecast
from millpond.model.amounts import decimal_text, seconds_text
from millpond.model.states import JobState, TaskState
from millpond.model.workloads import Kind
from millpond.node.host.clocks import WallClock
from millpond.node.host.periodic_worker import EXPECTED, Periodic, PeriodicWorker, for_each
from millpond.server.runtime.loop import Loop
from millpond.server.serving.proxy.request_meter import Load, ProxyMeter
from millpond.server.serving.replica_counts import Goal, Sizing
from millpond.server.serving.replica_forecasts import ReplicaForecast, ReplicaForecasts
from millpond.server.wording import lasting
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.api.services import ScalingInfo
from millpond.specs.job.fields import Tasks
from millpond.specs.job.job_file import JobFile
from millpond.specs.job.serving import Scale, Serve

LOOK_EVERY_S: Final = 5.0
TOLERANCE: Final = 0.1
"""A figure that is off its target by less changes nothing."""
_USES_KEPT: Final = 3
"""Looks over which the use of devices is averaged: one alone is a sample of less than a second."""


@dataclass(frozen=True, slots=True)
class ReplicaTarget:
    """How many replicas were wished for at an instant, and by which figure, in a clause."""

    at: float
    replicas: int
    why: str = ""


def wanted_replicas(scale: Scale, load: Load, replicas: int) -> tuple[int, str]:
    """How many replicas this load asks for, the highest of what its figures ask for, and which figure that is.

    Args:
        replicas: how many there are.
    """
    ratios = [(1.0 / replicas, "with nothing to do, one is enough")]
    if scale.requests_per_s is not None:
        text = f"{load.requests_per_s:.3g} requests/s, {decimal_text(scale.requests_per_s)} wished for each replica"
        ratios.append((load.requests_per_s / (scale.requests_per_s * replicas), text))
    if scale.open_requests is not None:
        text = f"{load.open_requests} open requests, {decimal_text(scale.open_requests)} wished for each replica"
        ratios.append((load.open_requests / (scale.open_requests * replicas), text))
    if scale.latency is not None and not load.latency_s and load.open_requests:
        # How long answers take is not known: a service that hangs is to lose no replicas.
        ratios.append((1.0, "requests are open, and none has ended since the last look"))
    elif scale.latency is not None:
        text = f"answers take {load.latency_s:.3g} s, {seconds_text(scale.latency)} wished"
        ratios.append((load.latency_s / scale.latency, text))
    if scale.device_use is not None and load.device_use_milli is not None:
        text = f"cards {load.device_use_milli / 10:.0f} % in use, {scale.device_use / 10:g} % wished"
        ratios.append((load.device_use_milli / scale.device_use, text))
    highest, why = max(ratios, key=lambda pair: pair[0])
    return (replicas if abs(highest - 1.0) <= TOLERANCE else math.ceil(highest * replicas - 1e-9)), why


def desired(targets: Sequence[ReplicaTarget], now: float, down_after_s: float, bounds: tuple[int, int]) -> Goal:
    """How many replicas there should be, and why.

    Args:
        targets: of the past, the latest last; not empty.
        bounds: the fewest and the most.
    """
    lately = [each for each in targets if each.at >= now - down_after_s] or [targets[-1]]
    highest = max(reversed(lately), key=lambda each: each.replicas)  # of equals the latest says why
    return Goal(min(max(highest.replicas, bounds[0]), bounds[1]), highest.why)


def is_idle(scale: Scale, now: float, running_since: float, used_at: float | None) -> bool:
    """Whether a service had no request for so long that it needs no replicas."""
    return now >= max(running_since, used_at or 0.0) + scale.idle_after


def scaling_info(
    now: float, goal: Goal, bounds: tuple[int, int], scale: Scale, coming: ReplicaForecast | NoForecast | None
) -> ScalingInfo:
    """What was found at a look, as it is shown.

    Args:
        coming: the forecast; None where the rule asks for none.
    """
    found = ScalingInfo(at=now, wanted=goal.replicas, why=goal.why, fewest=bounds[0], most=bounds[1])
    match coming:
        case None:
            return found
        case NoForecast(reason):
            return replace(found, ahead_s=scale.ahead, no_forecast=reason)
        case ReplicaForecast(replicas, ahead_s, load):
            return replace(
                found,
                ahead_s=ahead_s,
                forecast=replicas,
                by=load.by,
                coverage=load.coverage,
                skill=load.skill,
                tested_days=load.tested_days,
            )


@dataclass(slots=True)
class _Seen:
    """What is remembered of one run of a service."""

    attempt: int
    since: float
    targets: deque[ReplicaTarget] = field(default_factory=deque)
    uses: deque[float] = field(default_factory=lambda: deque(maxlen=_USES_KEPT))


def _tasks(file: JobFile) -> Tasks:
    """How many replicas a service may have."""
    (role,) = file.all_roles()
    assert role.tasks is not None, "all_roles fills this in"
    return role.tasks


class Autoscaler(Periodic):
    """Looks after all services with a rule for their number of replicas, on a thread of its own.

    Args:
        file_of: the job file of a job.
        measured: by the proxy.
        use_milli: how much each of some devices (by UUID) computes; those that report it.
        forecasts: of the replicas that services will need.
        steady: seconds of a clock that cannot be set; that of ``measured``.

    Attributes:
        is_spoken_for: whether a rollout decides about the replicas of a job at the moment.
        latest: what was found for each service as it was last looked at.
    """

    _first_after_s = LOOK_EVERY_S

    def __init__(
        self,
        loop: Loop,
        sizing: Sizing,
        file_of: Callable[[str], JobFile],
        measured: ProxyMeter,
        use_milli: Callable[[Collection[str]], Mapping[str, int]],
        forecasts: ReplicaForecasts,
        clock: WallClock,
        steady: Callable[[], float],
    ) -> None:
        self._loop = loop
        self._sizing = sizing
        self._file_of = file_of
        self._measured = measured
        self._use_milli = use_milli
        self._forecasts = forecasts
        self._clock = clock
        self._steady = steady
        self.is_spoken_for: Callable[[str], bool] = lambda _: False
        self.latest: dict[str, ScalingInfo] = {}
        self._seen: dict[str, _Seen] = {}
        self._worker = PeriodicWorker(
            "autoscaler", self.look, LOOK_EVERY_S, "services keep their replicas", (*EXPECTED, DBAPIError)
        )

    def close(self) -> None:
        """End, and keep what was learnt of loads."""
        self._worker.close()
        self._forecasts.save(self._clock())

    def look(self) -> None:
        """Look at each service once, and change what is to be changed."""
        services = {job.id: job for job in self._loop.job_cache.newest_first() if job.kind == Kind.SERVICE}
        for gone in self._seen.keys() - services.keys():
            del self._seen[gone]
            self.latest.pop(gone, None)
            self._sizing.call_off(gone)
            self._measured.forget(gone)
            self._forecasts.forget(gone)
        for_each(services.values(), self._look_after)

    def _look_after(self, job: JobInfo) -> None:
        if self.is_spoken_for(job.id):
            self.latest.pop(job.id, None)
            self._sizing.call_off(job.id)
        elif job.state == JobState.RUNNING or job.scaled_to_zero:
            file = self._file_of(job.id)
            if file.scale is not None and job.scaled_to_zero:
                self._wake_in_hours(job, file, file.scale)
            elif file.scale is not None:
                self._look_at(job, file, file.scale)

    def _wake_in_hours(self, job: JobInfo, file: JobFile, scale: Scale) -> None:
        """Have a service at rest come back in the hours in which it must not go without replicas."""
        self.latest.pop(job.id, None)
        fewest, _ = scale.bounds(_tasks(file), self._clock())
        if fewest:
            self._sizing.pursue(job, Goal(fewest, "the hours have come in which it must not rest"), 0.0)

    def _look_at(self, job: JobInfo, file: JobFile, scale: Scale) -> None:
        now = self._steady()
        fewest, most = scale.bounds(_tasks(file), self._clock())
        seen = self._seen.get(job.id)
        if seen is None or seen.attempt != job.attempt:
            seen = self._seen[job.id] = _Seen(job.attempt, now)
        drain_s = (file.serve or Serve()).drain
        load = replace(self._measured.load(job.id, now), device_use_milli=self._device_use(job, scale, seen))
        last_used = self._measured.last_used(job.id, now)
        if file.may_scale_to_zero and not fewest and is_idle(scale, now, seen.since, last_used):
            why = f"no request for {lasting(scale.idle_after)}; the next one wakes it"
            goal = Goal(0, why, swap=scale.rest == "swap")
            # A request between this look and the change calls it off.
            self._sizing.pursue(job, goal, 0.0, lambda: self._measured.last_used(job.id, now) == now)
        elif scale.has_target:
            coming = self._add_targets(now, job, scale, load, seen.targets)
            goal = desired(seen.targets, now, scale.down_after, (max(fewest, 1), most))
            self.latest[job.id] = scaling_info(self._clock(), goal, (max(fewest, 1), most), scale, coming)
            self._sizing.pursue(job, goal, drain_s)
        elif scale.hours:
            usual = max(_tasks(file).count, fewest, 1)
            self._sizing.pursue(job, Goal(min(usual, most), "so its file says for this hour"), drain_s)

    def _add_targets(
        self, now: float, job: JobInfo, scale: Scale, load: Load, targets: deque[ReplicaTarget]
    ) -> ReplicaForecast | NoForecast | None:
        """Note how many replicas a service wants by its load of the moment, and by the forecast, which is returned."""
        if not targets and scale.down_after:
            # It is not known yet, or not since the start, what is enough: the present number counts as wanted.
            there = sum(task.state in (TaskState.STARTING, TaskState.RUNNING) for task in job.tasks)
            targets.append(ReplicaTarget(now, there, f"fewer have not been enough for {lasting(scale.down_after)} yet"))
        running = max(1, sum(task.state == TaskState.RUNNING for task in job.tasks))
        wanted, why = wanted_replicas(scale, load, running)
        targets.append(ReplicaTarget(now, wanted, why))
        coming = None if scale.ahead is None else self._forecasts.ahead(self._clock(), job.id, wanted, scale.ahead)
        if isinstance(coming, ReplicaForecast) and coming.replicas > wanted:
            targets.append(ReplicaTarget(now, coming.replicas, coming.why))
        while targets[0].at < now - scale.down_after:
            targets.popleft()
        return coming

    def _device_use(self, job: JobInfo, scale: Scale, seen: _Seen) -> float | None:
        """How much the devices of a service compute, averaged over the last looks; None when nothing reports it."""
        if scale.device_use is None:
            return None
        held = {grant.uuid for task in job.tasks if task.state == TaskState.RUNNING for grant in task.devices}
        known = self._use_milli(held).values()
        if known:
            seen.uses.append(sum(known) / len(known))
        return sum(seen.uses) / len(seen.uses) if seen.uses else None
