"""The sharing of one engine's devices: room for starts, the return of tasks that made room, and recovery.

What keeps tasks to their slices (``slices``) and the watch for escapes (``escapes``) are parts of it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from millpond.engines.local.background import Background
from millpond.engines.local.escapes import EscapeWatcher
from millpond.engines.local.live_tasks import LiveTasks
from millpond.engines.local.options import EngineOptions
from millpond.engines.local.slices import Slices, TaskAssignments
from millpond.engines.task_ends import Refusal
from millpond.model.decisions import Placement
from millpond.model.errors import MillpondError, UnavailableError
from millpond.model.hardware.devices import Device
from millpond.model.hardware.telemetry import SliceReading
from millpond.model.units import MIB
from millpond.node.devices.vendor import OwnProcesses
from millpond.node.host import procfs
from millpond.node.host.machine import Machine
from millpond.node.sharing.agent_lock import AnotherAgentError
from millpond.node.sharing.arbiter import Arbiter, NodeContext
from millpond.node.sharing.backend import SliceUsage, TaskEnv
from millpond.node.sharing.checkpoint import CheckpointMover, listed_mib
from millpond.node.sharing.desired_state import DesiredStates
from millpond.node.sharing.escapes import Escape
from millpond.node.sharing.helper import CheckpointHelper
from millpond.node.sharing.ledger import Ledger, LedgerEntry, Residence
from millpond.node.sharing.movers import INSTANCES, VendorMover
from millpond.node.sharing.residency import LEAST_MOVE_S, ResidencyManager
from millpond.node.sharing.trees import RecordedProcesses, TaskTrees
from millpond.node.task import runner
from millpond.node.task.launch import LaunchSpec
from millpond.node.task.records import RunRecord, TaskFiles, TaskId

_RETURN_AGAIN_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Room:
    """The answer to a request for room.

    Attributes:
        refusal: why there is none; nothing is held then.
        envs: what each task with slices has to be started with.
    """

    refusal: Refusal | None = None
    envs: Mapping[TaskId, TaskEnv] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SharingCallbacks:
    """What sharing reports and asks. All but ``is_ending`` are called on the loop.

    Attributes:
        on_lost: a task cannot go on, and why.
        on_escape: a task uses a device beyond its slice.
        on_displaced: a task has made room for a job; with no job named, it is back.
        is_ending: whether a task has been asked to end; any thread asks.
    """

    on_lost: Callable[[TaskId, str], None]
    on_escape: Callable[[Escape], None]
    on_displaced: Callable[[TaskId, str], None]
    is_ending: Callable[[TaskId], bool]


class DeviceSharing:
    """Lives on the engine's loop; what blocks runs in the background.

    Attributes:
        residency: takes tasks off their devices and back.
        background: where that is done.
    """

    def __init__(
        self,
        machine: Machine,
        live: LiveTasks,
        background: Background,
        callbacks: SharingCallbacks,
        options: EngineOptions,
    ) -> None:
        self._live = live
        self.background = background
        self._lock = options.agent_lock
        self._state_dir = state_dir = live.state_dir
        self._devices = devices = {device.uuid: device for node in machine.nodes for device in node.devices}
        self._vendors = machine.vendors
        self.hindrance()
        self._helper = CheckpointHelper()
        self._slices = Slices(devices, options.holds, state_dir)
        desired_states = DesiredStates(lambda task: TaskFiles.of(state_dir, task).desired_state)
        self._trees = TaskTrees(self._processes_of, desired_states, self._slices.hold_launches, callbacks.is_ending)
        self._ledger = Ledger(
            {uuid: device.memory_mib for uuid, device in devices.items()},
            {node.name: node.swap_mib for node in machine.nodes},
        )
        checkpoints = CheckpointMover(self._helper, self._trees, self._ledger.total_mib, self._resident_mib)
        mover = VendorMover(self._trees, checkpoints, self.vendor_of)
        context = NodeContext(
            time.monotonic,
            lambda task, reason: background.call(callbacks.on_lost, task, reason),
            lambda task, for_job: background.call(callbacks.on_displaced, task, for_job),
            {node.name: procfs.available_mib for node in machine.nodes if any(not card.fake for card in node.devices)},
        )
        assignments = TaskAssignments(
            state_dir, live, self._slices, lambda uuids: machine.environment([devices[uuid] for uuid in uuids])
        )
        self._arbiter = Arbiter(self._ledger, mover, context)
        self.residency = ResidencyManager(self._arbiter, self._trees, desired_states, assignments)
        self._watcher = EscapeWatcher(machine, live, self._slices, self._trees, background, callbacks.on_escape)
        self._is_returning = False
        self._next_return: asyncio.TimerHandle | None = None

    def close(self) -> None:
        """End what runs beside the engine; moves that are under way are finished by the next engine."""
        self._helper.close()
        self._lock.release()

    def take_in(self, devices: Sequence[Device]) -> None:
        """Devices that are there from now on, as a card was divided; any thread may say so."""
        for device in devices:
            self._devices[device.uuid] = device
            self._ledger.set_capacity(device.uuid, device.memory_mib)

    def admit(
        self, tasks: Mapping[TaskId, Placement], launch: LaunchSpec, then: Callable[[Room], None], *, shares_cards: bool
    ) -> None:
        """Get room for all tasks of a start, or for none; at once if there is room and nothing to prepare, which is
        nearly always the case.

        Args:
            shares_cards: they come to cards that another job has and keeps, whatever room is left.
        """
        if not any(self._slices.concern(placed.grants) for placed in tasks.values()):
            room = self._room_for(tasks, launch, 0.0, shares_cards)
            if room.refusal is None:
                then(room)
                return

        def admitted(room: Room) -> None:
            then(room)
            self._let_return()  # tasks that made room for a start that failed
            self._watcher.watch()

        self.background.run(lambda: self._room_for(tasks, launch, LEAST_MOVE_S, shares_cards), admitted)

    def release(self, task: TaskId) -> None:
        """A task is over, or its start failed."""
        self.residency.release(task)
        if task in self._slices.held:  # what held it may have a daemon to stop
            self.background.run(lambda: self._slices.release(task), lambda _: None)
        self._let_return()

    def recover(
        self, records: Sequence[RunRecord], unanswered: Callable[[TaskId], bool], then: Callable[[], None]
    ) -> None:
        """Find out where the tasks of an earlier engine are, before anything else is asked."""
        for record in records:
            self._slices.adopt(record)
        self._watcher.watch()
        entries = [LedgerEntry.of_record(record) for record in records]

        def look() -> None:
            with self._trees.surveyed():
                self.residency.recover(entries, unanswered, LEAST_MOVE_S)

        if entries:
            self.background.run(look, lambda _: then())
        else:
            then()

    def own_processes(self) -> OwnProcesses:
        """The processes and devices of this engine's tasks; any thread may ask."""
        running = runner.running_now(self._live.records())
        return OwnProcesses(running.pids | self._slices.processes(), running.devices)

    def readings(self) -> list[SliceReading]:
        """What each task uses of its devices, as the node counts it; any thread may ask."""
        found = []
        for entry in self._ledger:
            task, usage = entry.task, self._slices.usage(entry.task) or SliceUsage()
            swapped = entry.residence is Residence.SWAPPED
            used_mib = None if usage.used_bytes is None else usage.used_bytes // MIB
            for device, mib in entry.memory_mib.items():
                found.append(
                    SliceReading(
                        task.job,
                        task.attempt,
                        task.task,
                        device,
                        self._slices.kind(task),
                        usage.busy_ns,
                        0 if swapped else used_mib,
                        mib if swapped else 0,
                        usage.denials,
                    )
                )
        return found

    def fault_domain(self, task: TaskId) -> frozenset[TaskId]:
        """The tasks that a fatal fault of this one ends, too."""
        return self._slices.fault_domain(task)

    def let_launch(self, task: TaskId) -> None:
        """Open the gate of a task that has been asked to end: it may need its device for that."""
        self._slices.hold_launches(task, held=False)

    def hindrance(self) -> str:
        """Why real devices cannot be shared here; empty when they can, or when there are none.

        Checked anew each time, as the other server may have ended since.
        """
        if all(device.fake for device in self._devices.values()):
            return ""
        try:
            self._lock.take(f"process {os.getpid()}, state directory {self._state_dir}")
        except (AnotherAgentError, OSError) as error:
            return str(error)
        return ""

    def _processes_of(self, task: TaskId) -> RecordedProcesses | None:
        record = self._live.record(task)
        return None if record is None else RecordedProcesses(record)

    def vendor_of(self, task: TaskId) -> str:
        """The vendor of a task's first device (``INSTANCES`` for an instance of a card); empty when it has none."""
        record = self._live.record(task)
        device = self._devices.get(record.devices[0]) if record is not None and record.devices else None
        if device is None:
            return ""
        return INSTANCES if device.parent else device.vendor

    def _resident_mib(self, task: TaskId) -> int:
        """What a task has on its devices by the driver's list of processes; 0 where that does not tell."""
        pids = set(self._trees.pids(task))
        try:
            return listed_mib(self._vendors[self.vendor_of(task)].sample(), pids)
        except (KeyError, UnavailableError):
            return 0

    def is_swapped(self, task: TaskId) -> bool:
        """Whether a task's device memory is on the host."""
        entry = self._ledger.get(task)
        return entry is not None and entry.residence is Residence.SWAPPED

    def _room_for(
        self, tasks: Mapping[TaskId, Placement], launch: LaunchSpec, deadline_s: float, shares_cards: bool
    ) -> Room:
        """All of it or nothing."""
        taken: list[TaskId] = []
        envs: dict[TaskId, TaskEnv] = {}
        try:
            for task, placed in tasks.items():
                if self._ledger.get(task) is None:  # else an earlier engine started it, and recovery found it
                    self._take_room(task, placed, launch, deadline_s, shares_cards)
                    taken.append(task)
                if self._slices.concern(placed.grants) and (hindrance := self.hindrance()):
                    raise _NoRoomError(hindrance)
                env = self._slices.prepare(task, placed.grants, launch)
                if env is not None:
                    envs[task] = env
        except (MillpondError, OSError) as error:
            for task in taken:
                self.residency.release(task)
                self._slices.release(task)
            return Room(Refusal(str(error), isinstance(error, (_NoRoomError, OSError))))
        return Room(None, envs)

    def _take_room(
        self, task: TaskId, placed: Placement, launch: LaunchSpec, deadline_s: float, shares_cards: bool
    ) -> None:
        memory = {grant.device: grant.memory_mib for grant in placed.grants}
        entry = LedgerEntry(task, placed.node, memory, launch.share_class)
        if shares_cards:
            self._arbiter.join(entry)
            return
        answer = self._arbiter.arrive(entry, time.monotonic() + deadline_s)
        if not answer.ok:
            raise _NoRoomError(f"no room on the devices of node {placed.node}: {answer.reason}")

    def _let_return(self) -> None:
        """Bring tasks back that had to make room, as soon as there is room again."""
        if self._is_returning or not self._arbiter.anybody_displaced:
            return
        self._is_returning = True
        self.background.run(lambda: self._arbiter.bring_back(time.monotonic() + LEAST_MOVE_S), self._returned)

    def _returned(self, _: list[TaskId]) -> None:
        self._is_returning = False
        if self._next_return is not None:
            self._next_return.cancel()
        if self._arbiter.anybody_displaced:  # a foreign process may be in the way, whose end is not announced
            self._next_return = self.background.loop.call_later(_RETURN_AGAIN_S, self._let_return)


class _NoRoomError(MillpondError):
    """The devices are full, or another server's; another node, or a later try, may do better."""
