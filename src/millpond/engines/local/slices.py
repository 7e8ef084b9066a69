"""Enforcement of slices for the tasks of this engine: chosen at the start, and found again by the next engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from millpond.engines.local.live_tasks import LiveTasks
from millpond.model.decisions import Grant
from millpond.model.errors import MillpondError, UnavailableError
from millpond.model.hardware.devices import Device
from millpond.model.sharing import SliceHold
from millpond.node.containers.container_launch import ContainerLaunch
from millpond.node.containers.preload_trial import trouble_with_preload
from millpond.node.sharing.backend import EnforcementRequest, SliceEnforcer, SliceUsage, TaskEnv, require_room
from millpond.node.task.launch import LaunchSpec
from millpond.node.task.records import RunRecord, TaskFiles, TaskId, write_assignment


class Slices:
    """All slices of real devices.

    Args:
        holds: by vendor of the device; which of them, a pool says, and the first where none is of that kind.
    """

    def __init__(
        self, devices: Mapping[str, Device], holds: Mapping[str, Sequence[SliceEnforcer]], state_dir: Path
    ) -> None:
        self._devices = devices
        self._holds = holds
        self._state_dir = state_dir
        self._of_task: dict[TaskId, SliceEnforcer] = {}
        self._image_trouble: dict[tuple[str, str], str] = {}

    def concern(self, grants: Sequence[Grant]) -> bool:
        """Whether these are less than whole cards."""
        return bool(self._cut(grants)) or self._on_instances(grants)

    def prepare(self, task: TaskId, grants: Sequence[Grant], launch: LaunchSpec) -> TaskEnv | None:
        """What holds a task to its slices; None when it has none. Blocks, the first time for seconds.

        Raises:
            InvalidInputError: nothing could run in such a slice.
            OSError: what would hold it cannot be made at the moment.
            UnavailableError: nothing holds it, and its pool requires that something does.
        """
        cut = self._cut(grants)
        if not cut:
            return TaskEnv(SliceHold.MIG) if self._on_instances(grants) else None
        for grant in cut:
            require_room(grant, self._devices[grant.device])
        env = self._held(task, cut, launch)
        if env.hold is SliceHold.NOTHING and launch.slice_rules.required:
            raise UnavailableError(
                f"nothing would keep it to its slice: {env.reason}",
                "ask for a whole card or another pool, or mend what is named; a pool with enforce: preferred lets it "
                "start all the same",
            )
        return env

    def adopt(self, record: RunRecord) -> None:
        """Go on with a task of an earlier engine."""
        hold = self._hold_of(record.grants, record.held_by)
        if hold is not None and hold.adopt(record.id, self._folder(record.id), record.devices):
            self._of_task[record.id] = hold

    def hold_launches(self, task: TaskId, held: bool) -> None:
        """Close or open what stands before the device; any thread may."""
        hold = self._of_task.get(task)
        if hold is not None:
            hold.hold_launches(task, held)

    def usage(self, task: TaskId) -> SliceUsage | None:
        """What a task uses by the account of its hold; None where nothing holds it."""
        hold = self._of_task.get(task)
        return None if hold is None else hold.usage(task)

    def match_driver(self, task: TaskId, driver_mib: int, usage: SliceUsage) -> None:
        """Have what holds a task mind what the driver says of its memory; see ``SliceEnforcer``."""
        hold = self._of_task.get(task)
        if hold is not None:
            hold.match_driver(task, driver_mib, usage)

    def kind(self, task: TaskId) -> SliceHold:
        """What keeps a task to its slices."""
        hold = self._of_task.get(task)
        return SliceHold.UNKNOWN if hold is None else hold.kind

    @property
    def held(self) -> frozenset[TaskId]:
        """All tasks that something keeps to their slices."""
        return frozenset(tuple(self._of_task))  # copied first: other threads start and end tasks

    def processes(self) -> frozenset[int]:
        """Processes that are neither tasks nor foreign."""
        holds = {id(hold): hold for hold in tuple(self._of_task.values())}
        return frozenset(pid for hold in holds.values() for pid in hold.processes())

    def fault_domain(self, task: TaskId) -> frozenset[TaskId]:
        """The tasks that a fatal fault of this one ends, too."""
        hold = self._of_task.get(task)
        return frozenset() if hold is None else hold.fault_domain(task)

    def move(self, task: TaskId, grants: Sequence[Grant]) -> None:
        """It has its slices of other devices from now on.

        Raises:
            MillpondError: what holds it cannot follow.
        """
        hold = self._of_task.get(task)
        if hold is not None:
            hold.move(task, [grant.device for grant in grants])

    def release(self, task: TaskId) -> None:
        """A task is over, or never came to start."""
        hold = self._of_task.pop(task, None)
        if hold is not None:
            hold.release(task)

    def _held(self, task: TaskId, cut: Sequence[Grant], launch: LaunchSpec) -> TaskEnv:
        holds = self._holds_for(cut)
        hold = next((each for each in holds if each.kind is launch.slice_rules.hold), next(iter(holds), None))
        if hold is None:
            vendor = self._devices[cut[0].device].vendor
            return TaskEnv(SliceHold.NOTHING, f"there is nothing that does so for {vendor} devices")
        if reason := hold.why_not():
            return TaskEnv(SliceHold.NOTHING, reason)
        owner = None if launch.identity is None else (launch.identity.uid, launch.identity.gid)
        rules = launch.slice_rules
        request = EnforcementRequest(
            task,
            self._folder(task),
            cut,
            launch.share_class,
            owner,
            rules.required,
            launch.swappable,
            launch.container is not None,
            rules.floor_milli,
        )
        try:
            env = hold.prepare(request)
            trouble = self._trouble_in_image(launch.container, env.preload)
        except OSError:  # a full disk, for instance: no reason to start it with nothing that holds it
            hold.release(task)
            raise
        except MillpondError as error:
            trouble = str(error)
        if trouble:
            hold.release(task)
            return TaskEnv(SliceHold.NOTHING, trouble)
        self._of_task[task] = hold
        kernel = next((each for each in holds if each.kind is SliceHold.DMEM and each is not hold), None)
        return env if kernel is None else _bounded_too(env, kernel, request)

    def _trouble_in_image(self, container: ContainerLaunch | None, preload: str) -> str:
        """Why the programs of an image would not load what holds them; each image is looked at once."""
        if container is None or not preload:
            return ""
        key = container.image.digest, preload
        if key not in self._image_trouble:
            self._image_trouble[key] = trouble_with_preload(container.containers, container.image, Path(preload))
        return self._image_trouble[key]

    def vendor_of(self, device: str) -> str:
        """Whose device it is, by its UUID."""
        return self._devices[device].vendor

    def _cut(self, grants: Sequence[Grant]) -> tuple[Grant, ...]:
        return tuple(grant for grant in grants if self._is_cut(grant))

    def _on_instances(self, grants: Sequence[Grant]) -> bool:
        """Whether the card itself has cut these out; a part of an instance is a slice like any other."""
        devices = (self._devices.get(grant.device) for grant in grants)
        return any(device is not None and device.parent for device in devices)

    def _is_cut(self, grant: Grant) -> bool:
        device = self._devices.get(grant.device)
        return device is not None and not device.fake and grant.is_part_of(device)

    def _hold_of(self, grants: Sequence[Grant], kind: SliceHold) -> SliceEnforcer | None:
        return next((hold for hold in self._holds_for(grants) if hold.kind is kind), None)

    def _holds_for(self, grants: Sequence[Grant]) -> Sequence[SliceEnforcer]:
        device = self._devices.get(grants[0].device) if grants else None
        return () if device is None else self._holds.get(device.vendor, ())

    def _folder(self, task: TaskId) -> Path:
        return TaskFiles.of(self._state_dir, task).record.with_suffix(".gate")


def _bounded_too(env: TaskEnv, kernel: SliceEnforcer, request: EnforcementRequest) -> TaskEnv:
    """What holds a task, and the kernel's bound on its device memory beside it where there is one."""
    if kernel.why_not():
        return env
    try:
        return replace(env, device_memory_mib=kernel.prepare(request).device_memory_mib)
    except MillpondError:
        return env


@dataclass(frozen=True, slots=True)
class TaskAssignments:
    """The devices on which this engine's tasks belong: on disk, in memory, and for what holds them to their slices.

    Attributes:
        environment: variables by which programs find devices, by their UUIDs.
    """

    state_dir: Path
    live: LiveTasks
    slices: Slices
    environment: Callable[[Sequence[str]], Mapping[str, str]]

    def of(self, task: TaskId) -> tuple[Grant, ...]:
        """See ``DeviceAssignments``."""
        record = self.live.record(task)
        return () if record is None else record.grants

    def move(self, task: TaskId, grants: Sequence[Grant], left: Sequence[str]) -> None:
        """See ``DeviceAssignments``. What holds it follows first: the next engine finds out itself whether it has."""
        self.slices.move(task, grants)
        self._note(task, grants, left)

    def arrived(self, task: TaskId) -> None:
        """See ``DeviceAssignments``."""
        record = self.live.record(task)
        if record is not None and record.left:
            self._note(task, record.grants, ())

    def _note(self, task: TaskId, grants: Sequence[Grant], left: Sequence[str]) -> None:
        env = self.environment([grant.device for grant in grants])
        write_assignment(TaskFiles.of(self.state_dir, task), grants, left, env)
        self.live.move(task, grants, left)
