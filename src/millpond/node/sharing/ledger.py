"""What is held of each device and of the memory beside it: the node's own books.

The core's grants are the truth about who may hold what; this is their image, with what only the node can see: who is
on the device at this moment. It is the one authority about room on a device, as the driver reserves nothing for a task
that is to come back. All figures are MiB; a grant's memory has the task's context in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from millpond.model.errors import InconsistentStateError
from millpond.model.sharing import ShareClass
from millpond.node.task.records import RunRecord, TaskId


class Residence(StrEnum):
    """Where the device memory of a task is."""

    RESIDENT = "resident"
    LEAVING = "leaving"
    """Still on the device, and room on the host is set aside for it."""
    SWAPPED = "swapped"
    RETURNING = "returning"
    """Still on the host, and room on the device is set aside for it."""


_ON_DEVICE = frozenset({Residence.RESIDENT, Residence.LEAVING, Residence.RETURNING})
_ON_HOST = frozenset({Residence.LEAVING, Residence.SWAPPED, Residence.RETURNING})


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """What one task holds on one node.

    Attributes:
        memory_mib: by UUID of the device.
        left: while its memory is on the host and is to come back on other devices: those that it was taken off, in the
            same order.
        displaced: it was swapped to make room on this node, not by a decision of the core, and comes back when there
            is room again.
        movable: it has not turned out to be unable to leave.
        arrived: rises with each entry; who came later leaves first.
    """

    task: TaskId
    node: str
    memory_mib: Mapping[str, int]
    share_class: ShareClass = ShareClass.NORMAL
    residence: Residence = Residence.RESIDENT
    displaced: bool = False
    movable: bool = True
    arrived: int = 0
    left: tuple[str, ...] = ()

    @staticmethod
    def of_record(record: RunRecord) -> LedgerEntry:
        """What a task of an earlier agent holds."""
        memory = {grant.device: grant.memory_mib for grant in record.grants}
        return LedgerEntry(record.id, record.node, memory, record.share_class, left=record.left)

    @property
    def moves(self) -> dict[str, str]:
        """On which device comes back what was taken off which; empty where it comes back to its own."""
        return dict(zip(self.left, self.memory_mib, strict=True)) if self.left else {}

    @property
    def total_mib(self) -> int:
        """On all its devices."""
        return sum(self.memory_mib.values())


@dataclass(frozen=True, slots=True)
class Account:
    """One device's books.

    Attributes:
        capacity_mib: 0: unknown, and then nothing is held back.
        resident_mib: what tasks on it may use, and what is set aside for tasks that are coming back.
        swapped_mib: what belongs on it and is in host memory.
    """

    capacity_mib: int
    resident_mib: int
    swapped_mib: int

    @property
    def free_mib(self) -> int:
        """What another could be given."""
        return self.capacity_mib - self.resident_mib


class Ledger:
    """The books of all devices that one engine looks after.

    Args:
        capacity_mib: of each device, by UUID.
        host_mib: by node, the host memory that may hold device memory.
    """

    def __init__(self, capacity_mib: Mapping[str, int], host_mib: Mapping[str, int]) -> None:
        self._capacity = dict(capacity_mib)
        self._host = dict(host_mib)
        self._entries: dict[TaskId, LedgerEntry] = {}
        self._by_device: dict[str, set[TaskId]] = {}
        self._arrivals = 0

    def __iter__(self) -> Iterator[LedgerEntry]:
        return iter(tuple(self._entries.values()))

    def set_capacity(self, device: str, capacity_mib: int) -> None:
        """How much memory a device has, by its UUID; it may be new."""
        self._capacity[device] = capacity_mib

    def set_host(self, node: str, mib: int) -> None:
        """How much host memory of a node may hold device memory."""
        self._host[node] = mib

    def get(self, task: TaskId) -> LedgerEntry | None:
        """What a task holds; None for one that is not here."""
        return self._entries.get(task)

    def total_mib(self, task: TaskId) -> int:
        """What a task holds of all devices together; 0 for one that is not here."""
        entry = self._entries.get(task)
        return 0 if entry is None else entry.total_mib

    def account(self, device: str) -> Account:
        """One device's books."""
        held = [(entry, entry.memory_mib[device]) for entry in self.on((device,))]
        return Account(
            self._capacity.get(device, 0),
            sum(mib for entry, mib in held if entry.residence in _ON_DEVICE),
            sum(mib for entry, mib in held if entry.residence is Residence.SWAPPED),
        )

    def host_free_mib(self, node: str) -> int:
        """Host memory of a node that could take more."""
        return self._host.get(node, 0) - sum(
            entry.total_mib for entry in self._entries.values() if entry.node == node and entry.residence in _ON_HOST
        )

    def host_mib(self, node: str) -> int:
        """Host memory of a node that is set aside."""
        return self._host.get(node, 0)

    def shortage(self, entry: LedgerEntry) -> dict[str, int]:
        """By device, how much is missing for this one to be on it; empty when nothing is."""
        missing = {}
        for device, mib in entry.memory_mib.items():
            account = self.account(device)
            if account.capacity_mib and mib > account.free_mib:
                missing[device] = mib - account.free_mib
        return missing

    def add(self, entry: LedgerEntry) -> None:
        """Take a task into the books.

        Raises:
            InconsistentStateError: it is there already, or there is no room for it.
        """
        if entry.task in self._entries:
            raise InconsistentStateError(f"task {entry.task} is in the node's books already")
        self._require(self.shortage(entry) if entry.residence in _ON_DEVICE else {}, entry)
        self._enter(entry)

    def observe(self, entry: LedgerEntry) -> None:
        """Take a task into the books as it was found, whether or not there is room for it."""
        self._enter(replace(entry, left=()) if entry.residence is Residence.RESIDENT else entry)

    def move(self, task: TaskId, residence: Residence, displaced: bool | None = None) -> None:
        """A task's memory is elsewhere now, or on its way.

        Raises:
            InconsistentStateError: there is no room on the device.
        """
        entry = self._entries[task]
        if residence in _ON_DEVICE and entry.residence not in _ON_DEVICE:
            self._require(self.shortage(entry), entry)
        keeps = entry.displaced if displaced is None else displaced
        left = () if residence is Residence.RESIDENT else entry.left
        self._entries[task] = replace(entry, residence=residence, displaced=keeps, left=left)

    def reassign(self, task: TaskId, devices: Sequence[str]) -> None:
        """A task whose memory is on the host is to come back on these devices.

        Raises:
            InconsistentStateError: its memory is not on the host.
        """
        entry = self._entries[task]
        if entry.residence is not Residence.SWAPPED:
            raise InconsistentStateError(f"task {task} is {entry.residence.value} and cannot come back elsewhere")
        came_from = entry.left or tuple(entry.memory_mib)
        memory = dict(zip(devices, entry.memory_mib.values(), strict=True))
        for device in entry.memory_mib:
            self._by_device[device].discard(task)
        for device in memory:
            self._by_device.setdefault(device, set()).add(task)
        left = () if came_from == tuple(devices) else came_from
        self._entries[task] = replace(entry, memory_mib=memory, left=left)

    def fix(self, task: TaskId) -> None:
        """A task turned out to be unable to leave its device."""
        self._entries[task] = replace(self._entries[task], movable=False)

    def remove(self, task: TaskId) -> None:
        """A task is over and holds nothing; nothing happens when it is not in the books."""
        entry = self._entries.pop(task, None)
        for device in entry.memory_mib if entry is not None else ():
            self._by_device[device].discard(task)

    def on(self, devices: Iterable[str]) -> list[LedgerEntry]:
        """Everybody who holds something of these devices."""
        tasks = {task for device in devices for task in self._by_device.get(device, ())}
        return sorted((self._entries[task] for task in tasks), key=lambda entry: entry.arrived)

    def _enter(self, entry: LedgerEntry) -> None:
        self._arrivals += 1
        self._entries[entry.task] = replace(entry, arrived=self._arrivals)
        for device in entry.memory_mib:
            self._by_device.setdefault(device, set()).add(entry.task)

    def _require(self, shortage: Mapping[str, int], entry: LedgerEntry) -> None:
        if shortage:
            device, mib = next(iter(shortage.items()))
            raise InconsistentStateError(f"device {device} lacks {mib} MiB for task {entry.task}")
