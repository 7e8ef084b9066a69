"""One start, from its decision to its answer: all of its tasks run, or nothing of it remains."""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from pathlib import Path

from millpond.engines.local.background import when_possible
from millpond.engines.local.live_tasks import LiveTasks
from millpond.engines.local.options import EngineOptions
from millpond.engines.local.ports import Rendezvous, free_port
from millpond.engines.local.verdicts import refusal_of
from millpond.engines.task_ends import Refusal
from millpond.model.confinement import Confinement, loosest
from millpond.model.decisions import Decision, Placement, Start
from millpond.model.errors import UnavailableError
from millpond.model.hardware.devices import Device
from millpond.node.host.controllers import Amounts
from millpond.node.host.machine import Machine
from millpond.node.sharing.backend import UNSLICED, TaskEnv
from millpond.node.task import runner
from millpond.node.task.forkserver_client import ForkserverClient, Spawned
from millpond.node.task.launch import LaunchSpec, ListenMode
from millpond.node.task.limits import NO_LIMITS, TaskLimits
from millpond.node.task.records import RunRecord, TaskFiles, TaskId, read_record
from millpond.node.task.runner import StopRequest
from millpond.node.task.start_planner import TaskStart, plan_start
from millpond.specs.job.job_ids import service_of
from millpond.specs.job.serving import base_path

_CRASHED = Refusal(
    "the task's supervisor did not come up; see supervisors.log in the state directory", device_fault=True
)
_KILLED = Refusal("the task's supervisor was killed while it started", device_fault=True)


@dataclass(frozen=True, slots=True)
class StartContext:
    """What all starts of an engine share.

    Attributes:
        options: the engine's; records of tasks name the first of its ``servers`` as their own.
    """

    machine: Machine
    state_dir: Path
    live: LiveTasks
    forkserver: ForkserverClient
    loop: asyncio.AbstractEventLoop
    options: EngineOptions


class StartState(Enum):
    """How far a start is."""

    SETTLING = auto()
    """Some task's record does not say yet whether it runs."""
    CONFIRMED = auto()
    """All tasks run or have run."""
    UNDOING = auto()
    """A task could not start; those that did are being ended."""
    REFUSED = auto()
    """A task could not start, and nothing is left."""


class PendingStart:
    """A start on its way.

    Attributes:
        launch: what its tasks execute.
        tasks: the tasks to be started, each with its place.
        refusal: why the start fails; None while nothing has failed.
        ended: records of tasks that were over before the start was answered.
        deferred: decisions about the same job that wait for the answer.
        ports: the ports on which its tasks are to serve, by task.
        devices: the devices that it grants, by UUID.

    Args:
        on_answer: called once, when the state is ``CONFIRMED`` or ``REFUSED``.
    """

    def __init__(
        self, decision: Start, launch: LaunchSpec, context: StartContext, on_answer: Callable[[PendingStart], None]
    ) -> None:
        self.decision = decision
        self.tasks = {TaskId(decision.job, decision.attempt, placed.task): placed for placed in decision.placements}
        self.refusal: Refusal | None = None
        self.ended: list[RunRecord] = []
        self.deferred: list[Decision] = []
        self.ports: dict[int, int] = {}
        self._pinned: list[tuple[int, ...]] = []
        self._confinements: list[Confinement] = []
        self.launch = launch
        self._context = context
        self._on_answer = on_answer
        self._on_settled: Callable[[], None] = lambda: None
        self._port = 0
        self._settling = set(self.tasks)
        self.devices = _granted_devices(decision, context.machine)

    @property
    def state(self) -> StartState:
        """How far the start is."""
        if self._settling:
            return StartState.SETTLING
        if self.refusal is None:
            return StartState.CONFIRMED
        return StartState.UNDOING if self._context.live.of_start(self.decision.id) else StartState.REFUSED

    @property
    def confinement(self) -> Confinement:
        """What confines its tasks; where they differ, what holds for all of them."""
        return loosest(self._confinements)

    def choose_ports(self, taken: Collection[int]) -> None:
        """Find each task a port, when it is to serve.

        Args:
            taken: ports that others have.

        Raises:
            UnavailableError: the machine has no free one.
        """
        if self.launch.serves:
            for placed in self.decision.placements:
                self.ports[placed.task] = free_port({*taken, *self.ports.values()})

    def refuse(self, refusal: Refusal) -> None:
        """Give up before anything was started."""
        self.refusal = refusal
        self._settling.clear()
        self._on_answer(self)

    def begin(self, meeting: Rendezvous, envs: Mapping[TaskId, TaskEnv], on_settled: Callable[[], None]) -> None:
        """Set all tasks off.

        Args:
            envs: what holds those that have slices.
            on_settled: called once each of them runs, or cannot.
        """
        self._on_settled = on_settled
        self._port = meeting.port
        for task, placed in self.tasks.items():
            try:
                start = self._task_start(task, placed, meeting, envs.get(task, UNSLICED))
                plan = plan_start(self._context.state_dir, start, self.launch, self._context.options.sandbox)
                record = TaskFiles.of(self._context.state_dir, task).record
                spawned = self._context.forkserver.spawn(self._context.state_dir, record, plan)
            except OSError as error:
                self._settle(task, Refusal(f"node {placed.node} cannot start processes: {error}", device_fault=True))
            else:
                self._context.loop.add_reader(spawned.settled, self._look, task, spawned)

    def task_ended(self, record: RunRecord) -> None:
        """One of its tasks is over before the start was answered."""
        self.ended.append(record)
        if self.state is StartState.REFUSED:
            self._on_answer(self)

    def _task_start(self, task: TaskId, placed: Placement, meeting: Rendezvous, sliced: TaskEnv) -> TaskStart:
        devices = [self.devices[grant.device] for grant in placed.grants]
        env = {
            **self.launch.inherited,
            **self.launch.env,
            **meeting.environment(task.task),
            **self._context.machine.environment(devices),
            "MILLPOND_JOB_ID": task.job,
            "MILLPOND_TASK": str(task.task),
            "MILLPOND_ATTEMPT": str(task.attempt),
            "MILLPOND_ROLE": placed.role,
            "MILLPOND_NODE": placed.node,
            "MILLPOND_NETWORK": "private" if meeting.private else "host",
        }
        port, key = self.ports.get(task.task), ""
        if port is not None:
            key = secrets.token_urlsafe(24)
            env |= {"MILLPOND_ACCESS_KEY": key, "MILLPOND_BASE_PATH": base_path(service_of(task.job))}
            if self.launch.listening is not ListenMode.SOCKET:
                env["MILLPOND_PORT"] = str(port)
        return TaskStart(
            task,
            self.decision.id,
            placed,
            sliced.applied_to(env),
            sliced,
            self._limits(task, placed, sliced.device_memory_mib),
            port,
            key,
            self._context.options.servers[0],
            meeting.private,
        )

    def _limits(self, task: TaskId, placed: Placement, device_memory_mib: Mapping[str, int]) -> TaskLimits:
        """What the task is kept to, and by what."""
        role, limiter = placed.role, self._context.options.limiter
        amounts = self.launch.role_amounts.get(role, Amounts(0, 0) if device_memory_mib else None)
        if amounts is None or self.launch.container is not None:  # which its runtime keeps to them
            return NO_LIMITS
        own = [self.devices[grant.device] for grant in placed.grants]
        # The tasks of a gang reach into each other's cards (CUDA's memory between processes, as NCCL uses it).
        closed = limiter.closed_to(own) if self.launch.is_alone else ()
        amounts = replace(amounts, device_memory_mib=device_memory_mib, closed=closed)
        mark = hashlib.sha256(f"{self._context.state_dir}\0{task.job}".encode()).hexdigest()[:12]
        name = f"millpond-{mark}-{task.attempt}-{task.task}"
        pinned = (*self._context.live.pinned(), *self._pinned)
        limits = limiter.limits(name, amounts, role in self.launch.said_memory, pinned)
        self._pinned.append(limits.process.cpus)
        return limits

    def _look(self, task: TaskId, spawned: Spawned) -> None:
        """A supervisor closed its end of the pipe: the record says how the start went."""
        self._context.loop.remove_reader(spawned.settled)
        os.close(spawned.settled)
        when_possible(
            self._context.loop,
            lambda: self._take_charge(task, spawned),
            lambda refusal: self._settle(task, refusal),
        )

    def _take_charge(self, task: TaskId, spawned: Spawned) -> Refusal | None:
        """Watch a task whose start is settled; says what is wrong when it did not start."""
        files = TaskFiles.of(self._context.state_dir, task)
        record = read_record(files) or runner.lost_record(files)
        if record is not None and record.decision != self.decision.id:
            record = None
        if record is not None:
            self._confinements.append(record.confinement)
            if record.error is None and record.supervisor_pid == spawned.pid:
                self._context.live.watch(record, spawned.handle, self._port)
                return None
        refusal = _CRASHED if record is None else refusal_of(record, self.launch)
        if record is not None and refusal is None and self._context.live.attach(record) is None:
            # An earlier engine carried this decision out, and the task is over.
            record = self._context.live.final_record(record)
            self.ended.append(record)
            refusal = None if record.over else _KILLED
        self._context.loop.add_reader(spawned.handle, self._collect, spawned.handle)
        return refusal

    def _collect(self, handle: int) -> None:
        self._context.loop.remove_reader(handle)
        os.close(handle)

    def _settle(self, task: TaskId, refusal: Refusal | None) -> None:
        self._settling.discard(task)
        self.refusal = self.refusal or refusal
        if not self._settling:
            self._on_settled()
        if self.state is StartState.UNDOING:
            for live in self._context.live.of_start(self.decision.id):
                self._context.live.request_stop(live, StopRequest(0.0))
        elif self.state is not StartState.SETTLING:
            self._on_answer(self)


def _granted_devices(decision: Start, machine: Machine) -> dict[str, Device]:
    """The devices a start is about, by UUID.

    Raises:
        UnavailableError: a node or device is not (or no more) part of this machine.
    """
    nodes = {node.name: {device.uuid: device for device in node.devices} for node in machine.nodes}
    found = {}
    for placed in decision.placements:
        if placed.node not in nodes:
            raise UnavailableError(f"node {placed.node} is not part of this machine", "restart the server there")
        for grant in placed.grants:
            if grant.device not in nodes[placed.node]:
                raise UnavailableError(
                    f"device {grant.device} is not on node {placed.node}", "restart the server to look again"
                )
            found[grant.device] = nodes[placed.node][grant.device]
    return found
