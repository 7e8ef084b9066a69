"""Takes pods off their cards and back, as the node does with its own tasks (``node.sharing.residency``)."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from millpond.engines.kubernetes.agent.allocations import Allocation
from millpond.engines.kubernetes.agent.pod_processes import PodProcesses
from millpond.engines.kubernetes.agent.pod_slices import PodSlices
from millpond.model.decisions import Grant
from millpond.model.errors import InvalidInputError, UnavailableError
from millpond.model.hardware.devices import Device
from millpond.node.devices.nvidia import NvidiaVendor
from millpond.node.host import procfs
from millpond.node.host.machine import Machine
from millpond.node.sharing.arbiter import Arbiter, NodeContext
from millpond.node.sharing.backend import MoveOutcome, MoveResult
from millpond.node.sharing.checkpoint import CheckpointMover, listed_mib
from millpond.node.sharing.desired_state import DesiredState, DesiredStates
from millpond.node.sharing.helper import CheckpointHelper
from millpond.node.sharing.ledger import Ledger, LedgerEntry
from millpond.node.sharing.movers import INSTANCES, VendorMover
from millpond.node.sharing.residency import FREEZE_S, LEAST_MOVE_S, ResidencyManager, move_deadline_s
from millpond.node.sharing.trees import TaskTrees
from millpond.node.task.records import TaskId

_DESIRED, _LIMITS = "desired", "limits"


@dataclass(frozen=True, slots=True)
class HeldPods:
    """What an agent knows of the pods on its cards, by their uids; any thread asks.

    Attributes:
        find: what a pod was given.
        is_ending: whether it was asked to end.
        on_lost: called with one that cannot go on, and why.
    """

    find: Callable[[str], Allocation | None]
    is_ending: Callable[[str], bool]
    on_lost: Callable[[str, str], None]


class PodResidency:
    """All pods that hold cards of one node. All but ``close`` blocks, until it is done or its deadline is over.

    Args:
        folder: for what it has to remember.
        machine: as it is when the agent starts; what comes later it is told of.
        slices: what holds pods to their parts.
    """

    def __init__(self, folder: Path, machine: Machine, slices: PodSlices, pods: HeldPods) -> None:
        self._folder, self._node, self._pods = folder / "residency", machine.nodes[0].name, pods
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._desired_states = DesiredStates(lambda task: self._file(task, _DESIRED))
        self._trees = TaskTrees(
            self._processes_of, self._desired_states, slices.hold_launches, lambda task: pods.is_ending(task.job)
        )
        self._helper = CheckpointHelper()
        self._ledger = Ledger({}, {})
        self._machine, self._devices = machine, dict[str, Device]()
        self.looked_at(machine)
        checkpoints = CheckpointMover(self._helper, self._trees, self._ledger.total_mib, self._resident_mib)
        context = NodeContext(
            time.monotonic,
            lambda task, reason: pods.on_lost(task.job, reason),
            available_mib={self._node: procfs.available_mib},
        )
        arbiter = Arbiter(self._ledger, VendorMover(self._trees, checkpoints, self._vendor_of), context)
        self._residency = ResidencyManager(arbiter, self._trees, self._desired_states, _Assigned(self._made))

    def looked_at(self, machine: Machine) -> None:
        """The machine as it is now: cards of a driver that was away may be there. Does not block."""
        (node,) = machine.nodes
        if node.devices:  # without any there is no host memory for what theirs holds either
            self._machine, self._devices = machine, {device.uuid: device for device in node.devices}
            self._ledger.set_host(self._node, node.swap_mib)
            for device in node.devices:
                self._ledger.set_capacity(device.uuid, device.memory_mib)

    def recover(self, held: Iterable[Allocation]) -> None:
        """Find out where the pods of an earlier agent are, and finish what it was about."""
        entries = [self._entry(made) for made in held]
        self._residency.recover(entries, lambda task: False, LEAST_MOVE_S)

    def arrived(self, made: Allocation) -> None:
        """A pod was given its cards, on which there was room."""
        self._ledger.observe(self._entry(made))

    def release(self, made: Allocation) -> None:
        """A pod is over."""
        self._residency.release(made.pod.task)
        self._file(made.pod.task, _LIMITS).unlink(missing_ok=True)

    def reach(self, made: Allocation, desired: DesiredState) -> MoveResult:
        """Have a pod be where it is wanted."""
        task = made.pod.task
        try:
            match desired:
                case DesiredState.FROZEN:
                    return self._residency.freeze(task, FREEZE_S)
                case DesiredState.SWAPPED:
                    return self._residency.swap_out(task, move_deadline_s(self._ledger.total_mib(task)))
                case DesiredState.RUNNING:
                    return self._residency.resume(task, move_deadline_s(self._ledger.total_mib(task)))
        except OSError as error:  # a full disk: the desired state cannot be written, so nothing is done
            return MoveResult(MoveOutcome.TIMEOUT, f"the node fails to do it: {error}")

    def desired_of(self, made: Allocation) -> DesiredState:
        """Where a pod is wanted, by what was last written down."""
        return self._desired_states.of(made.pod.task)

    def let_end(self, made: Allocation) -> None:
        """A pod was asked to end: it goes on, as it may want to save its work."""
        self._trees.hold_launches(made.pod.task, False)
        self._trees.go_on(made.pod.task)

    def close(self) -> None:
        """End what runs beside the agent."""
        self._helper.close()

    def _entry(self, made: Allocation) -> LedgerEntry:
        """Never one that makes room for others: who is on a card the server alone decides."""
        memory = {grant.device: grant.memory_mib for grant in made.pod.order.grants}
        return LedgerEntry(made.pod.task, self._node, memory, made.pod.order.share_class, movable=False)

    def _made(self, task: TaskId) -> Allocation | None:
        return self._pods.find(task.job)

    def _file(self, task: TaskId, name: str) -> Path:
        return self._folder / f"{task.job}.{name}"

    def _processes_of(self, task: TaskId) -> PodProcesses | None:
        return None if self._made(task) is None else PodProcesses(task.job, self._file(task, _LIMITS))

    def _vendor_of(self, task: TaskId) -> str:
        made = self._made(task)
        device = None if made is None else self._devices.get(made.pod.order.grants[0].device)
        return INSTANCES if device is not None and device.parent else NvidiaVendor.name

    def _resident_mib(self, task: TaskId) -> int:
        try:
            return listed_mib(self._machine.vendors[NvidiaVendor.name].sample(), set(self._trees.pids(task)))
        except (KeyError, UnavailableError):
            return 0


@dataclass(frozen=True, slots=True)
class _Assigned:
    """Pods keep the cards that they started with (``node.sharing.residency.DeviceAssignments``)."""

    made: Callable[[TaskId], Allocation | None]

    def of(self, task: TaskId) -> tuple[Grant, ...]:
        made = self.made(task)
        return () if made is None else made.pod.order.grants

    def move(self, task: TaskId, grants: Sequence[Grant], left: Collection[str]) -> None:
        raise InvalidInputError("a pod was given its cards when it started", "end it, and let it start elsewhere")

    def arrived(self, task: TaskId) -> None:
        return
