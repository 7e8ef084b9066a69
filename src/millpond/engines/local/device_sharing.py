"""Where the engine's loop hands over what takes its time: making room on devices, moving tasks, preparing slices.

The loop asks and is called back. What it asks runs in threads of its own, one for each request: requests are few, and
each has a deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from millpond.engines.local.device_assignments import TaskAssignments
from millpond.engines.local.live_tasks import LiveTasks
from millpond.engines.local.slices import Request, Slices
from millpond.engines.local.verdicts import Refusal
from millpond.model.decisions import Grant, SuspendMode
from millpond.model.errors import MillpondError
from millpond.model.telemetry import SliceReading
from millpond.node.devices.vendor import OwnProcesses
from millpond.node.host import procfs
from millpond.node.host.machine import Machine
from millpond.node.sharing.agent_lock import AgentLock, AnotherAgentError
from millpond.node.sharing.arbiter import NodeContext
from millpond.node.sharing.backend import MoveOutcome, MoveResult, SliceEnforcer, SliceUsage, TaskEnv
from millpond.node.sharing.checkpoint import CheckpointMover
from millpond.node.sharing.desired_state import DesiredStateFiles
from millpond.node.sharing.escapes import LOOK_EVERY_S, Escape, EscapeWatch, WatchedSlice
from millpond.node.sharing.helper import CheckpointHelper
from millpond.node.sharing.ledger import Ledger, LedgerEntry, Residence
from millpond.node.sharing.movers import INSTANCES, VendorMover
from millpond.node.sharing.residency import ResidencyDependencies, ResidencyManager
from millpond.node.sharing.trees import TaskTrees
from millpond.node.task import runner
from millpond.node.task.records import RunRecord, TaskId

FREEZE_S = 15.0
_LEAST_MOVE_S = 30.0
_SLOWEST_MIB_PER_S = 500.0
"""A tenth of what the driver was measured to move (cuda-checkpoint issue 29); a host may be busy with others' moves."""
_MOST_AT_ONCE = 16
_RETURN_AGAIN_S = 5.0

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Room:
    """What came of asking for room.

    Attributes:
        refusal: why there is none; nothing is held then.
        envs: what each task with slices has to be started with.
    """

    refusal: Refusal | None = None
    envs: Mapping[TaskId, TaskEnv] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SharingCallbacks:
    """Whom a desk tells, on the loop, and whom it asks, from any thread.

    Attributes:
        on_lost: a task cannot go on, and why.
        on_escape: a task uses a device beyond its slice.
        on_unmappable: the driver of a node brings nothing back on other devices.
        on_displaced: a task has made room for a job; with no job named, it is back.
        is_ending: whether a task has been told to end.
    """

    on_lost: Callable[[TaskId, str], None]
    on_escape: Callable[[Escape], None]
    on_displaced: Callable[[TaskId, str], None]
    on_unmappable: Callable[[str], None]
    is_ending: Callable[[TaskId], bool]


class DeviceSharing:
    """The sharing of one engine's devices. Lives on the engine's loop, but for what it runs in the background."""

    def __init__(
        self,
        machine: Machine,
        state_dir: Path,
        live: LiveTasks,
        loop: asyncio.AbstractEventLoop,
        callers: SharingCallbacks,
        holds: Mapping[str, Sequence[SliceEnforcer]],
        lock: AgentLock,
    ) -> None:
        self._machine = machine
        self._loop = loop
        self._live = live
        self._callers = callers
        self._lock = lock
        self._devices = {device.uuid: device for node in machine.nodes for device in node.devices}
        self._state_dir = state_dir
        self._lock_guard = threading.Lock()
        self.hindrance()
        self._helper = CheckpointHelper()
        self._slices = Slices(self._devices, holds, state_dir)
        wishes = DesiredStateFiles(state_dir)
        self._trees = TaskTrees(self._record_of, wishes, self._slices.hold_launches, callers.is_ending)
        capacity = {uuid: device.memory_mib for uuid, device in self._devices.items()}
        ledger = Ledger(capacity, {node.name: node.swap_mib for node in machine.nodes})
        checkpoints = CheckpointMover(self._helper, self._trees, self._memory_of)
        mover = VendorMover(self._trees, checkpoints, self._vendor_of)
        surroundings = NodeContext(
            time.monotonic,
            lambda task, reason: self._call_back(callers.on_lost, task, reason),
            lambda task, for_job: self._call_back(callers.on_displaced, task, for_job),
            {node.name: procfs.available_mib for node in machine.nodes if any(not card.fake for card in node.devices)},
        )
        homes = TaskAssignments(state_dir, live, self._slices, self._environment)
        self.residency = ResidencyManager(
            ResidencyDependencies(ledger, mover, self._trees, wishes, homes), surroundings
        )
        self._escapes = EscapeWatch()
        self._is_returning = self._is_watching = False
        self._return_again: asyncio.TimerHandle | None = None

    def close(self) -> None:
        """End what runs beside the engine; moves that are on their way are finished by the next engine."""
        self._helper.close()
        self._lock.release()

    # ---- arriving and leaving ---------------------------------------------------------------------------------------

    def admit(self, requests: Sequence[Request], then: Callable[[Room], None]) -> None:
        """Get room for all tasks of a start, or for none; at once where there is room and nothing to prepare, as is
        nearly always the case."""
        if not any(self._slices.concern(request) for request in requests):
            room = self._room_for(requests, 0.0)
            if room.refusal is None:
                then(room)
                return
        self.in_background(lambda: self._room_for(requests, _LEAST_MOVE_S), lambda room: self._admitted(room, then))

    def release(self, task: TaskId) -> None:
        """A task is over, or never came to start."""
        self.residency.release(task)
        if task in self._slices.held:  # what held it may have a daemon to stop
            self.in_background(lambda: self._slices.release(task), lambda _: None)
        self._let_return()

    def ours(self) -> OwnProcesses:
        """What is not a stranger's on the devices; any thread may ask."""
        running = runner.running_now(self._live.records())
        return OwnProcesses(running.pids | self._slices.processes(), running.devices)

    def readings(self) -> list[SliceReading]:
        """What each task makes of its devices, as the node counts it; any thread may ask."""
        found = []
        for entry in self.residency.ledger:
            task, usage = entry.task, self._slices.usage(entry.task) or SliceUsage()
            away = entry.residence is Residence.SWAPPED
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
                        0 if away else usage.used_mib,
                        mib if away else 0,
                        usage.denials,
                    )
                )
        return found

    def is_away(self, task: TaskId) -> bool:
        """Whether a task's device memory is on the host."""
        entry = self.residency.ledger.get(task)
        return entry is not None and entry.residence is Residence.SWAPPED

    def is_frozen(self, task: TaskId) -> bool:
        """Whether a task is to be halted with its device memory where it is."""
        return self._trees.stays_halted(task)

    def mates(self, task: TaskId) -> frozenset[TaskId]:
        """The tasks that a fatal fault of this one ends, too."""
        return self._slices.mates(task)

    def let_launch(self, task: TaskId) -> None:
        """It has been told to end, and may need its device for that."""
        self._slices.hold_launches(task, False)

    # ---- moving -----------------------------------------------------------------------------------------------------

    def suspend(self, tasks: Sequence[TaskId], mode: SuspendMode) -> list[MoveResult]:
        """Take tasks off their devices, all at once; blocks."""
        if mode is SuspendMode.FREEZE:
            return _all_at_once(lambda task: self.residency.freeze(task, FREEZE_S), tasks)
        if any(self._vendor_of(task) not in ("", "fake") for task in tasks) and (hindrance := self.hindrance()):
            return [MoveResult(MoveOutcome.UNSUPPORTED, hindrance) for _ in tasks]
        return _all_at_once(lambda task: self.residency.swap_out(task, self._move_s(task)), tasks)

    def resume(self, tasks: Sequence[TaskId], grants: Sequence[Grant] = ()) -> list[MoveResult]:
        """Let tasks go on, all at once; blocks.

        Args:
            grants: where the only one goes on; none: where they were.
        """
        return _all_at_once(lambda task: self._resume(task, grants), tasks)

    def migrate(self, task: TaskId, grants: Sequence[Grant]) -> MoveResult:
        """Take a task to other devices of its node as it runs; blocks."""
        if self._vendor_of(task) not in ("", "fake") and (hindrance := self.hindrance()):
            return MoveResult(MoveOutcome.UNSUPPORTED, hindrance)
        (answer,) = _all_at_once(lambda task: self._migrate(task, grants), [task])
        return answer

    def recover(
        self, records: Sequence[RunRecord], unanswered: Callable[[TaskId], bool], then: Callable[[], None]
    ) -> None:
        """Find out where the tasks of an earlier engine are, before anything else is asked."""
        for record in records:
            self._slices.adopt(record)
        self._watch()
        entries = [_entry_of(record) for record in records]

        def look() -> None:
            with self._trees.surveyed():
                self.residency.recover(entries, unanswered, _LEAST_MOVE_S)

        if entries:
            self.in_background(look, lambda _: then())
        else:
            then()

    def in_background(self, act: Callable[[], Result], then: Callable[[Result], None]) -> None:
        """Do something that blocks; what comes of it is told on the loop, a defect too."""

        def run() -> None:
            try:
                result = act()
            except Exception as error:  # handed on: the engine's caller is told
                failure = {"message": "a defect in the background", "exception": error}
                self._call_back(self._loop.call_exception_handler, failure)
            else:
                self._call_back(then, result)

        threading.Thread(target=run, name="sharing", daemon=True).start()

    # ---- inside -----------------------------------------------------------------------------------------------------

    def _migrate(self, task: TaskId, grants: Sequence[Grant]) -> MoveResult:
        fixed = self._fixed(task, grants)
        return fixed or self._told(task, self.residency.migrate(task, grants, self._move_s(task)))

    def _resume(self, task: TaskId, grants: Sequence[Grant]) -> MoveResult:
        fixed = self._fixed(task, grants)
        return fixed or self._told(task, self.residency.resume(task, self._move_s(task), grants))

    def _fixed(self, task: TaskId, grants: Sequence[Grant]) -> MoveResult | None:
        """Why a task can be nowhere but on its own devices, if it would be elsewhere."""
        record = self._record_of(task)
        if record is None or not record.container or {grant.device for grant in grants} <= {*record.devices}:
            return None
        return MoveResult(MoveOutcome.UNSUPPORTED, "it runs in a container, which was given its cards when it started")

    def _environment(self, devices: Sequence[str]) -> dict[str, str]:
        return self._machine.environment([self._devices[uuid] for uuid in devices])

    def _told(self, task: TaskId, answer: MoveResult) -> MoveResult:
        record = self._record_of(task)
        if answer.unmappable and record is not None:
            self._call_back(self._callers.on_unmappable, record.node)
        return answer

    def hindrance(self) -> str:
        """Why real devices cannot be shared here; empty when they can, or when there are none.

        Looked at anew each time, as whoever was in the way may have gone since.
        """
        if all(device.fake for device in self._devices.values()):
            return ""
        try:
            with self._lock_guard:
                self._lock.take(f"process {os.getpid()}, state directory {self._state_dir}")
        except (AnotherAgentError, OSError) as error:
            return str(error)
        return ""

    def _room_for(self, requests: Sequence[Request], deadline_s: float) -> Room:
        """All of it or nothing."""
        taken: list[TaskId] = []
        envs: dict[TaskId, TaskEnv] = {}
        try:
            for request in requests:
                if self.residency.ledger.get(request.task) is None:
                    self._take_room(request, deadline_s)
                    taken.append(request.task)
                if self._slices.concern(request) and (hindrance := self.hindrance()):
                    raise _NoRoomError(hindrance)
                env = self._slices.prepare(request)
                if env is not None:
                    envs[request.task] = env
        except MillpondError as error:
            for task in taken:
                self.residency.release(task)
                self._slices.release(task)
            return Room(Refusal(str(error), isinstance(error, _NoRoomError)))
        return Room(None, envs)

    def _take_room(self, request: Request, deadline_s: float) -> None:
        memory = {grant.device: grant.memory_mib for grant in request.grants}
        entry = LedgerEntry(request.task, request.node, memory, request.launch.share_class)
        answer = self.residency.arrive(entry, deadline_s)
        if not answer.ok:
            raise _NoRoomError(f"no room on the devices of node {request.node}: {answer.reason}")

    def _admitted(self, room: Room, then: Callable[[Room], None]) -> None:
        then(room)
        self._watch()
        self._let_return()  # who made room for one that then could not start

    def _let_return(self) -> None:
        """Those who had to make room come back as soon as there is room again."""
        if self._is_returning or not self.residency.anybody_displaced:
            return
        self._is_returning = True

        def settled(came: list[TaskId]) -> None:
            self._is_returning = False
            if self.residency.anybody_displaced and self._return_again is None:
                # A stranger may be in the way, who goes without our hearing of it.
                self._return_again = self._loop.call_later(_RETURN_AGAIN_S, self._try_returns_again)

        self.in_background(lambda: self.residency.bring_back(_LEAST_MOVE_S), settled)

    def _try_returns_again(self) -> None:
        self._return_again = None
        self._let_return()

    def _watch(self) -> None:
        """Look for escapes as long as there are slices to escape from."""
        if self._slices.held and not self._is_watching:
            self._is_watching = True
            self._loop.call_later(LOOK_EVERY_S, self.in_background, self._look, self._looked)

    def _look(self) -> list[Escape]:
        with self._trees.surveyed():
            held = self._held_now()
        vendors = {self._devices[each.device].vendor for each in held}
        samples = [sample for vendor in vendors for sample in self._machine.vendors[vendor].sample()]
        return self._escapes.look(samples, held)

    def _looked(self, escapes: Sequence[Escape]) -> None:
        self._is_watching = False
        for escape in escapes:
            self._callers.on_escape(escape)
        self._watch()

    def _held_now(self) -> list[WatchedSlice]:
        found = []
        for task in self._slices.held:
            record, usage = self._record_of(task), self._slices.usage(task)
            if record is not None and usage is not None:
                pids = frozenset(self._trees.pids(task))
                found += [WatchedSlice(task, grant.device, grant.memory_mib, pids, usage) for grant in record.grants]
        return found

    def _call_back(self, then: Callable[..., None], *results: object) -> None:
        with contextlib.suppress(RuntimeError):  # the engine was closed meanwhile
            self._loop.call_soon_threadsafe(then, *results)

    def _record_of(self, task: TaskId) -> RunRecord | None:
        live = self._live.get(task)
        return None if live is None else live.record

    def _vendor_of(self, task: TaskId) -> str:
        record = self._record_of(task)
        device = self._devices.get(record.devices[0]) if record is not None and record.devices else None
        if device is None:
            return ""
        return INSTANCES if device.parent else device.vendor

    def _memory_of(self, task: TaskId) -> int:
        entry = self.residency.ledger.get(task)
        return 0 if entry is None else entry.total_mib

    def _move_s(self, task: TaskId) -> float:
        return _LEAST_MOVE_S + self._memory_of(task) / _SLOWEST_MIB_PER_S


class _NoRoomError(MillpondError):
    """The devices are full, or another server's; another node, or a later try, may do better."""


def _entry_of(record: RunRecord) -> LedgerEntry:
    memory = {grant.device: grant.memory_mib for grant in record.grants}
    return LedgerEntry(record.id, record.node, memory, record.share_class, left=record.left)


def _all_at_once(act: Callable[[TaskId], MoveResult], tasks: Sequence[TaskId]) -> list[MoveResult]:
    def safely(task: TaskId) -> MoveResult:
        try:
            return act(task)
        except OSError as error:  # a full disk: what is wanted cannot be written down, so nothing is done
            return MoveResult(MoveOutcome.TIMEOUT, f"the machine fails to do it: {error}")

    if len(tasks) <= 1:
        return [safely(task) for task in tasks]
    with ThreadPoolExecutor(min(len(tasks), _MOST_AT_ONCE)) as pool:
        return list(pool.map(safely, tasks))
