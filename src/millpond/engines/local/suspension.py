"""Tasks off their devices, back, and to others: every call blocks until it is done or its deadline is over."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from millpond.engines.local.admission import LEAST_MOVE_S
from millpond.engines.local.live_tasks import LiveTasks
from millpond.model.decisions import Grant, SuspendMode
from millpond.model.devices import Device
from millpond.node.sharing.backend import MoveOutcome, MoveResult
from millpond.node.sharing.ledger import Residence
from millpond.node.sharing.movers import INSTANCES
from millpond.node.sharing.residency import ResidencyManager
from millpond.node.task.records import RunRecord, TaskId

FREEZE_S = 15.0
_SLOWEST_MIB_PER_S = 500.0
"""A tenth of what the driver was measured to move (cuda-checkpoint issue 29); a host may be busy with others' moves."""
_MOST_AT_ONCE = 16


class Suspension:
    """Any thread.

    Args:
        devices: by UUID.
        hindrance: why real devices cannot be shared here; empty when they can.
        on_unmappable: called with a node whose driver brings nothing back on other devices.
    """

    def __init__(
        self,
        residency: ResidencyManager,
        live: LiveTasks,
        devices: Mapping[str, Device],
        hindrance: Callable[[], str],
        on_unmappable: Callable[[str], None],
    ) -> None:
        self._residency = residency
        self._live = live
        self._devices = devices
        self._hindrance = hindrance
        self._on_unmappable = on_unmappable

    def suspend(self, tasks: Sequence[TaskId], mode: SuspendMode) -> list[MoveResult]:
        """Take tasks off their devices, all at once."""
        if mode is SuspendMode.FREEZE:
            return _all_at_once(lambda task: self._residency.freeze(task, FREEZE_S), tasks)
        if refusal := self._refusal(*tasks):
            return [refusal for _ in tasks]
        return _all_at_once(lambda task: self._residency.swap_out(task, self._move_s(task)), tasks)

    def resume(self, tasks: Sequence[TaskId], grants: Sequence[Grant] = ()) -> list[MoveResult]:
        """Let tasks go on, all at once.

        Args:
            grants: where the only one goes on; none: where they were.
        """
        return _all_at_once(
            lambda task: self._elsewhere(
                task, grants, lambda: self._residency.resume(task, self._move_s(task), grants)
            ),
            tasks,
        )

    def migrate(self, task: TaskId, grants: Sequence[Grant]) -> MoveResult:
        """Take a task to other devices of its node while it runs."""
        if refusal := self._refusal(task):
            return refusal
        (answer,) = _all_at_once(
            lambda task: self._elsewhere(
                task, grants, lambda: self._residency.migrate(task, grants, self._move_s(task))
            ),
            [task],
        )
        return answer

    def is_frozen(self, task: TaskId) -> bool:
        """Whether a task is to be halted with its device memory where it is."""
        return self._residency.is_frozen(task)

    def is_swapped(self, task: TaskId) -> bool:
        """Whether a task's device memory is on the host."""
        entry = self._residency.ledger.get(task)
        return entry is not None and entry.residence is Residence.SWAPPED

    def _refusal(self, *tasks: TaskId) -> MoveResult | None:
        """Why none of these can leave a real device."""
        vendors = {vendor_of(self._live.record(task), self._devices) for task in tasks}
        hindrance = self._hindrance() if vendors - {"", "fake"} else ""
        return MoveResult(MoveOutcome.UNSUPPORTED, hindrance) if hindrance else None

    def _elsewhere(self, task: TaskId, grants: Sequence[Grant], move: Callable[[], MoveResult]) -> MoveResult:
        """Move a task, perhaps to other devices; a container keeps its own."""
        record = self._live.record(task)
        if record is not None and record.container and not {grant.device for grant in grants} <= {*record.devices}:
            reason = "it runs in a container, which was given its cards when it started"
            return MoveResult(MoveOutcome.UNSUPPORTED, reason)
        answer = move()
        if answer.unmappable and record is not None:
            self._on_unmappable(record.node)
        return answer

    def _move_s(self, task: TaskId) -> float:
        return LEAST_MOVE_S + self._residency.ledger.total_mib(task) / _SLOWEST_MIB_PER_S


def vendor_of(record: RunRecord | None, devices: Mapping[str, Device]) -> str:
    """The vendor of a task's first device (``INSTANCES`` for an instance of a card); empty when it has none."""
    device = devices.get(record.devices[0]) if record is not None and record.devices else None
    if device is None:
        return ""
    return INSTANCES if device.parent else device.vendor


def _all_at_once(act: Callable[[TaskId], MoveResult], tasks: Sequence[TaskId]) -> list[MoveResult]:
    def safely(task: TaskId) -> MoveResult:
        try:
            return act(task)
        except OSError as error:  # a full disk: the desired state cannot be written, so nothing is done
            return MoveResult(MoveOutcome.TIMEOUT, f"the machine fails to do it: {error}")

    if len(tasks) <= 1:
        return [safely(task) for task in tasks]
    with ThreadPoolExecutor(min(len(tasks), _MOST_AT_ONCE)) as pool:
        return list(pool.map(safely, tasks))
