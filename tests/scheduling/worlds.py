"""Small worlds for tests of the core: makers of machines and jobs, and a driver that plays the engine's part.

The driver is deterministic: it confirms every start at once, ends work after the length it was told, ends stopped work
at once unless it was told to linger, and keeps the log of all events, so that a test can replay them.
"""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from millpond.model.decisions import CapPower, Decision, Migrate, Prefetch, Resume, Start, Stop, Suspend
from millpond.model.events import (
    Confirmed,
    DurationPredicted,
    Ended,
    Event,
    JobSubmitted,
    NodeJoined,
    PoolChanged,
    QueueChanged,
    Refused,
    Tick,
)
from millpond.model.hardware.devices import Device
from millpond.model.hardware.nodes import Node, Pool
from millpond.model.reasons import Reason
from millpond.model.resources import CARD_MILLI, SHARE_OF_CARD, Amount, SliceRequest, TaskRequest
from millpond.model.states import JobState, Outcome
from millpond.model.tenancy.tenants import Queue
from millpond.model.workloads import CheckpointMode, Job, Role
from millpond.scheduling.nodes.views import NodeView
from millpond.scheduling.ordering.queueing import LONGEST_PAUSE_S
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import Settings

CARD_MIB = 16_000
MOST_CYCLES = 60
"""Cycles at one instant after which a scheduler counts as unable to come to rest."""


def machine(
    name: str,
    cards: int = 4,
    *,
    model: str = "A100",
    card_mib: int = CARD_MIB,
    remaps: bool = False,
    cap_range_w: tuple[float, float] | None = None,
    **fields: Any,
) -> Node:
    """A node with ample CPU and memory; cards hang in pairs on switches, by fours on sockets."""
    devices = tuple(
        Device(f"{name}-{i}", i, "nvidia", model, card_mib, switch=i // 2, socket=i // 4, remaps=remaps)
        for i in range(cards)
    )
    if cap_range_w is not None:
        devices = tuple(replace(device, cap_range_w=cap_range_w) for device in devices)
    return replace(Node(name, 64_000, 256_000, devices), **fields)


def asks(
    gpus: float = 1,
    *,
    cpus: float = 1,
    memory_mib: int = 1_000,
    card_mib: int = SHARE_OF_CARD,
    limit: float | None = None,
    models: Iterable[str] = (),
    extras: Iterable[tuple[str, int]] = (),
) -> TaskRequest:
    """What one task asks for; ``gpus`` below 1 is a part of one card, ``limit`` the part it may use at most.

    With ``card_mib`` and 0 ``gpus`` it is a slice by memory alone.
    """
    devices, compute = round(gpus), CARD_MILLI
    if 0 < gpus < 1 or (gpus == 0 and card_mib > 0):
        devices, compute = 1, round(gpus * CARD_MILLI)
    limit_milli = compute if limit is None else round(limit * CARD_MILLI)
    piece = SliceRequest(compute, card_mib, limit_milli) if devices else SliceRequest()
    return TaskRequest(round(cpus * 1000), memory_mib, devices, piece, tuple(models), tuple(sorted(extras)))


def gang(id_: str, tasks: int, request: TaskRequest, **fields: Any) -> Job:
    """A job of ``tasks`` equal tasks that start together."""
    return Job(id_, (Role.rigid(request, tasks),), **fields)


def single(id_: str, gpus: float = 1, **fields: Any) -> Job:
    """A job of one task that asks for GPUs and next to nothing else."""
    return gang(id_, 1, asks(gpus), **fields)


def elastic(id_: str, bounds: tuple[int, int, int], request: TaskRequest, **fields: Any) -> Job:
    """A gang of (minimum, desired, maximum) tasks."""
    minimum, desired, maximum = bounds
    return Job(id_, (Role(request, desired, minimum, maximum),), **fields)


def queue(name: str, *, guarantee: float = 0, limit: float | None = None, **fields: Any) -> Queue:
    """A queue with a guarantee and a limit in GPUs."""
    most = None if limit is None else Amount(round(limit * CARD_MILLI))
    return Queue(name, guarantee=Amount(round(guarantee * CARD_MILLI)), limit=most, **fields)


def restarted(core: Scheduler) -> Scheduler:
    """The same scheduler after a restart of its server."""
    return Scheduler.restore(json.loads(json.dumps(core.snapshot())))


class World:
    """A scheduler, a clock, and an engine that does what it is told.

    Attributes:
        log: every event the scheduler saw, ticks included.
        decisions: everything it decided.
        lingering: jobs that do not end when they are stopped, until ``leave``.
        clinging: jobs that the engine cannot take off their devices, nor bring back on others.
        slow: jobs whose suspensions and migrations stay unanswered until ``leave_devices``.
        refusing: jobs whose next start the engine refuses, with the refusal's ``device_fault``.
    """

    def __init__(
        self,
        *nodes: Node,
        settings: Settings | None = None,
        pools: Iterable[Pool] = (),
        queues: Iterable[Queue] = (),
    ) -> None:
        self.core = Scheduler(settings)
        self.now = 0.0
        self.log: list[Event] = []
        self.decisions: list[Decision] = []
        self.lingering: set[str] = set()
        self.refusing: dict[str, bool] = {}
        self.clinging: set[str] = set()
        self.slow: set[str] = set()
        self._lengths: dict[str, float] = {}
        self._agenda: list[tuple[float, int, Event]] = []
        self._stopped: dict[str, Stop] = {}
        for pool in pools:
            self.tell(PoolChanged(0.0, pool))
        for each in queues:
            self.tell(QueueChanged(0.0, each))
        for node in nodes:
            self.tell(NodeJoined(0.0, node))

    # ---- what happens -------------------------------------------------------------------------------------------

    def tell(self, event: Event) -> None:
        """The scheduler hears of something."""
        self.log.append(event)
        self.core.handle(event)

    def submit(self, *jobs: Job, lasting: float | None = None, known: bool = False) -> list[Decision]:
        """Hand jobs in and let the scheduler come to rest.

        Args:
            lasting: they end well after so many seconds of one run; None: they run until they are ended.
            known: the scheduler is told that length.
        """
        for job in jobs:
            self.tell(JobSubmitted(self.now, job))
            if lasting is not None:
                self._lengths[job.id] = lasting
                if known:
                    self.tell(DurationPredicted(self.now, job.id, lasting, lasting))
        return self.settle()

    def go_to(self, instant: float) -> None:
        """Let time pass: every end that is due happens, every instant the scheduler wishes to wake at is kept."""
        while True:
            self.settle()
            wake = self.core.next_wakeup(self.now)
            due = [instant]
            if self._agenda:
                due.append(self._agenda[0][0])
            if wake is not None:
                due.append(max(wake, self.now + 0.001))
            self.now = min(due)
            while self._agenda and self._agenda[0][0] <= self.now:
                self.tell(heapq.heappop(self._agenda)[2])
            if self.now >= instant:
                self.settle()
                return

    def end(self, job: str, outcome: Outcome = Outcome.SUCCESS, task: int = -1, **fields: Any) -> list[Decision]:
        """A run (or one task of it) is over; one that is lost has run for long enough by then to run anew at once."""
        if outcome is Outcome.NODE_LOST:
            self.go_to(self.now + LONGEST_PAUSE_S)
        self.tell(Ended(self.now, job, self.core.jobs[job].attempt, outcome, task, **fields))
        return self.settle()

    def leave(self, job: str) -> list[Decision]:
        """Lingering work ends at last."""
        self.lingering.discard(job)
        self._end_stopped(self._stopped.pop(job))
        return self.settle()

    @property
    def stopped(self) -> list[str]:
        """Lingering work that was asked to end and has not."""
        return list(self._stopped)

    # ---- the engine's part --------------------------------------------------------------------------------------

    def tick(self) -> list[Decision]:
        """One cycle, without answers."""
        self.log.append(Tick(self.now))
        decisions = self.core.decide(self.now)
        self.decisions += decisions
        return decisions

    def settle(self) -> list[Decision]:
        """Cycles at this instant, each answered, until one decides nothing and has not come to its bound on work."""
        taken: list[Decision] = []
        for _ in range(MOST_CYCLES):
            decisions = self.tick()
            if not decisions and not self.core.is_unfinished:
                return taken
            taken += decisions
            for decision in decisions:
                self._answer(decision)
        raise AssertionError(f"still deciding after {MOST_CYCLES} cycles: {taken[-3:]}")

    def _answer(self, decision: Decision) -> None:
        match decision:
            case Start() if decision.job in self.refusing:
                self.tell(Refused(self.now, decision.id, "it says no", self.refusing.pop(decision.job)))
            case Start():
                self.tell(Confirmed(self.now, decision.id))
                length = self._lengths.get(decision.job)
                if length is not None and not decision.joins:
                    end = Ended(self.now + length, decision.job, decision.attempt, Outcome.SUCCESS, exit_code=0)
                    heapq.heappush(self._agenda, (end.at, decision.id, end))
            case Stop():
                self.tell(Confirmed(self.now, decision.id))
                if decision.job in self.lingering:
                    self._stopped[decision.job] = decision
                else:
                    self._end_stopped(decision)
            case Suspend() | Migrate() if decision.job in self.slow:
                pass
            case Suspend() | Migrate() if decision.job in self.clinging:
                self.tell(Refused(self.now, decision.id, "it cannot be moved"))
            case Resume() if decision.job in self.clinging and self.core.jobs[decision.job].tasks[0].vacating:
                self.tell(Refused(self.now, decision.id, "the driver refuses the map"))
            case Prefetch() if decision.contents:
                pass  # a test says when it is there
            case Suspend() | Resume() | Migrate() | CapPower() | Prefetch():
                self.tell(Confirmed(self.now, decision.id))

    def leave_devices(self, job: str) -> list[Decision]:
        """A slow suspension or migration is done at last."""
        self.slow.discard(job)
        latest = max(self.of_kind(Suspend, job) + self.of_kind(Migrate, job), key=lambda each: int(each.id))
        self.tell(Confirmed(self.now, latest.id))
        return self.settle()

    def _end_stopped(self, stop: Stop) -> None:
        record = self.core.jobs[stop.job]
        saves = record.job.checkpoint.mode is CheckpointMode.SIGNAL
        service_s = record.service_s(self.now) - record.attained_before_s if saves else None
        for task in stop.tasks or (-1,):
            self.tell(Ended(self.now, stop.job, stop.attempt, Outcome.STOPPED, task, service_s=service_s))

    # ---- what a user sees ---------------------------------------------------------------------------------------

    def state(self, job: str) -> JobState:
        """The job's state."""
        return self.core.jobs[job].state

    def running(self) -> set[str]:
        """Ids of the jobs that run."""
        return {job for job, record in self.core.jobs.items() if record.state is JobState.RUNNING}

    def nodes_of(self, job: str) -> list[str]:
        """Where its tasks are, in order of their numbers."""
        tasks = self.core.jobs[job].tasks
        return [task.placement.node for task in tasks if task.placement is not None and task.holding is not None]

    def tasks_by_node(self) -> Counter[str]:
        """How many tasks run on each machine."""
        return Counter(node for job in self.running() for node in self.nodes_of(job))

    def view(self, node: str) -> NodeView:
        """How a machine is."""
        return next(each for each in self.core.node_views() if each.node.name == node)

    def why(self, job: str) -> Reason:
        """What the scheduler says about the job; in a list it says the same in fewer words."""
        reason, brief = self.core.explain(job, self.now), self.core.cause(job, self.now)
        told = replace(reason, remedy=brief.remedy, position=brief.position, start=brief.start)
        assert told == brief, f"{brief} in a list, {reason} when asked"
        return reason

    def of_kind(self, kind: type[Decision], job: str = "") -> list[Any]:
        """Decisions of one kind, of one job or of all."""
        return [each for each in self.decisions if isinstance(each, kind) and job in ("", each.job)]
