"""The sharing of one engine's devices, put together: admission, suspension, the watch for escapes, and recovery."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from millpond.engines.local.admission import LEAST_MOVE_S, Admission, Room
from millpond.engines.local.background import Background
from millpond.engines.local.device_assignments import TaskAssignments
from millpond.engines.local.escape_watcher import EscapeWatcher
from millpond.engines.local.live_tasks import LiveTasks
from millpond.engines.local.slices import Slices
from millpond.engines.local.suspension import Suspension, vendor_of
from millpond.model.decisions import Placement
from millpond.model.telemetry import SliceReading
from millpond.node.devices.vendor import OwnProcesses
from millpond.node.host import procfs
from millpond.node.host.machine import Machine
from millpond.node.sharing.agent_lock import AgentLock, AnotherAgentError
from millpond.node.sharing.arbiter import NodeContext
from millpond.node.sharing.backend import SliceEnforcer, SliceUsage
from millpond.node.sharing.checkpoint import CheckpointMover
from millpond.node.sharing.desired_state import DesiredStateFiles
from millpond.node.sharing.escapes import Escape
from millpond.node.sharing.helper import CheckpointHelper
from millpond.node.sharing.ledger import Ledger, LedgerEntry, Residence
from millpond.node.sharing.movers import VendorMover
from millpond.node.sharing.residency import ResidencyDependencies, ResidencyManager
from millpond.node.sharing.trees import TaskTrees
from millpond.node.task import runner
from millpond.node.task.launch import LaunchSpec
from millpond.node.task.records import RunRecord, TaskId


@dataclass(frozen=True, slots=True)
class SharingCallbacks:
    """What sharing reports and asks. All but ``is_ending`` are called on the loop.

    Attributes:
        on_lost: a task cannot go on, and why.
        on_escape: a task uses a device beyond its slice.
        on_unmappable: the driver of a node brings nothing back on other devices.
        on_displaced: a task has made room for a job; with no job named, it is back.
        is_ending: whether a task has been asked to end; any thread asks.
    """

    on_lost: Callable[[TaskId, str], None]
    on_escape: Callable[[Escape], None]
    on_displaced: Callable[[TaskId, str], None]
    on_unmappable: Callable[[str], None]
    is_ending: Callable[[TaskId], bool]


class DeviceSharing:
    """Lives on the engine's loop; what blocks runs in the background.

    Attributes:
        suspension: takes tasks off their devices and back.
    """

    def __init__(
        self,
        machine: Machine,
        state_dir: Path,
        live: LiveTasks,
        background: Background,
        callbacks: SharingCallbacks,
        holds: Mapping[str, Sequence[SliceEnforcer]],
        lock: AgentLock,
    ) -> None:
        self._live = live
        self._background = background
        self._lock = lock
        self._state_dir = state_dir
        self._devices = devices = {device.uuid: device for node in machine.nodes for device in node.devices}
        self.hindrance()
        self._helper = CheckpointHelper()
        self._slices = Slices(devices, holds, state_dir)
        desired_states = DesiredStateFiles(state_dir)
        self._trees = TaskTrees(live.record, desired_states, self._slices.hold_launches, callbacks.is_ending)
        ledger = Ledger(
            {uuid: device.memory_mib for uuid, device in devices.items()},
            {node.name: node.swap_mib for node in machine.nodes},
        )
        checkpoints = CheckpointMover(self._helper, self._trees, ledger.total_mib)
        mover = VendorMover(self._trees, checkpoints, lambda task: vendor_of(live.record(task), devices))
        context = NodeContext(
            time.monotonic,
            lambda task, reason: background.call(callbacks.on_lost, task, reason),
            lambda task, for_job: background.call(callbacks.on_displaced, task, for_job),
            {node.name: procfs.available_mib for node in machine.nodes if any(not card.fake for card in node.devices)},
        )
        assignments = TaskAssignments(
            state_dir, live, self._slices, lambda uuids: machine.environment([devices[uuid] for uuid in uuids])
        )
        self._residency = ResidencyManager(
            ResidencyDependencies(ledger, mover, self._trees, desired_states, assignments), context
        )
        self._admission = Admission(self._residency, self._slices, background, self.hindrance)
        self.suspension = Suspension(
            self._residency,
            live,
            devices,
            self.hindrance,
            lambda node: background.call(callbacks.on_unmappable, node),
        )
        self._watcher = EscapeWatcher(machine, live, self._slices, self._trees, background, callbacks.on_escape)

    def close(self) -> None:
        """End what runs beside the engine; moves that are under way are finished by the next engine."""
        self._helper.close()
        self._lock.release()

    def admit(self, tasks: Mapping[TaskId, Placement], launch: LaunchSpec, then: Callable[[Room], None]) -> None:
        """Get room for all tasks of a start, or for none; see ``Admission.admit``."""

        def admitted(room: Room) -> None:
            then(room)
            self._watcher.watch()

        self._admission.admit(tasks, launch, admitted)

    def release(self, task: TaskId) -> None:
        """A task is over, or its start failed."""
        self._residency.release(task)
        if task in self._slices.held:  # what held it may have a daemon to stop
            self._background.run(lambda: self._slices.release(task), lambda _: None)
        self._admission.let_return()

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
                self._residency.recover(entries, unanswered, LEAST_MOVE_S)

        if entries:
            self._background.run(look, lambda _: then())
        else:
            then()

    def own_processes(self) -> OwnProcesses:
        """The processes and devices of this engine's tasks; any thread may ask."""
        running = runner.running_now(self._live.records())
        return OwnProcesses(running.pids | self._slices.processes(), running.devices)

    def readings(self) -> list[SliceReading]:
        """What each task uses of its devices, as the node counts it; any thread may ask."""
        found = []
        for entry in self._residency.ledger:
            task, usage = entry.task, self._slices.usage(entry.task) or SliceUsage()
            swapped = entry.residence is Residence.SWAPPED
            for device, mib in entry.memory_mib.items():
                found.append(
                    SliceReading(
                        task.job,
                        task.attempt,
                        task.task,
                        device,
                        entry.share_class,
                        self._slices.kind(task),
                        usage.busy_ns,
                        0 if swapped else usage.used_mib,
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
        self._slices.hold_launches(task, False)

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
