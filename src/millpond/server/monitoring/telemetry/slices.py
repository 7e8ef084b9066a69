"""How much each running task uses of its part of a device: by what enforces that part, else by its processes;
and which processes are on a device: as its driver lists them, else those of the tasks that hold it."""

from __future__ import annotations

import pwd
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from millpond.model.hardware.telemetry import ProcessSample, SliceReading
from millpond.node.host import procfs
from millpond.node.host.clocks import WallClock
from millpond.node.host.files import read_file
from millpond.node.host.periodic_worker import Periodic, PeriodicWorker
from millpond.node.sharing.device_times import DeviceTimes
from millpond.node.task.records import RunRecord
from millpond.server.monitoring.telemetry.sampling import COST_SHARE, Telemetry
from millpond.specs.api.pool.nodes import ProcessStatus

_LOOK_EVERY_S: Final = 1.0


class SliceKey(NamedTuple):
    """One run of one task on one device."""

    job: str
    attempt: int
    task: int
    device: str


@dataclass(frozen=True, slots=True)
class SliceUse:
    """What a task makes of its part of a device; None is unknown.

    Attributes:
        reading: what its node counted; None where it counts nothing.
        use_milli: part of the time since the look before in which its work was on the device.
    """

    reading: SliceReading | None = None
    use_milli: int | None = None
    memory_used_mib: int | None = None


@dataclass(frozen=True, slots=True)
class Sources:
    """Whom to ask about slices.

    Attributes:
        readings: what the node counts of each.
        records: the tasks that run.
    """

    readings: Callable[[], Iterable[SliceReading]]
    records: Callable[[], Iterable[RunRecord]]


class SliceMeter(Periodic):
    """Reads all slices regularly; device time is counted up, so what is used now takes two looks."""

    _first_after_s = _LOOK_EVERY_S

    def __init__(self, telemetry: Telemetry, sources: Sources, clock: WallClock) -> None:
        self._telemetry = telemetry
        self._sources = sources
        self._clock = clock
        self._device_times = DeviceTimes[SliceKey]()
        self._worker = PeriodicWorker("slice-samples", self._pass, _LOOK_EVERY_S, "the slices cannot be read now")
        self.latest: Mapping[SliceKey, SliceUse] = {}
        """As of the last look; replaced as a whole, so that any thread may read it."""

    def look(self) -> None:
        """Look at all slices once."""
        uses = {key: SliceUse(None, use, memory) for key, use, memory in self._by_processes()}
        now = self._clock()
        readings = {SliceKey(each.job, each.attempt, each.task, each.device): each for each in self._sources.readings()}
        busy_ns = {key: each.busy_ns for key, each in readings.items() if each.busy_ns is not None}
        by_counter = self._device_times.look(busy_ns, now)
        for key, reading in readings.items():
            seen = uses.get(key, SliceUse())
            use_milli = by_counter.get(key) if key in busy_ns else seen.use_milli
            memory_mib = seen.memory_used_mib if reading.memory_mib is None else reading.memory_mib
            uses[key] = SliceUse(reading, use_milli, memory_mib)
        self.latest = uses

    def processes_on(self, device: str) -> list[ProcessStatus]:
        """Who is on a device now."""
        return processes_on(device, self._telemetry, self._sources.records())

    def _by_processes(self) -> Iterator[tuple[SliceKey, int | None, int | None]]:
        """What the driver reports of each process, added up by task."""
        records = list(self._sources.records())
        supervisors = {record.supervisor_pid: record for record in records}
        for device in {device for record in records for device in record.devices}:
            sampled = self._telemetry.latest(device)
            of_task: dict[int, list[ProcessSample]] = {}
            for process in () if sampled is None else sampled.sample.processes or ():
                supervisor = procfs.first_above(process.pid, supervisors)
                if supervisor is not None:
                    of_task.setdefault(supervisor, []).append(process)
            for supervisor, processes in of_task.items():
                task = supervisors[supervisor].id
                key = SliceKey(task.job, task.attempt, task.task, device)
                yield key, _sum(each.use_milli for each in processes), _sum(each.memory_mib for each in processes)

    def _pass(self) -> float:
        begun_s = time.thread_time()
        self.look()
        return max(_LOOK_EVERY_S, (time.thread_time() - begun_s) * COST_SHARE)


def _sum(parts: Iterable[int | None]) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


MOST_LISTED: Final = 100


def processes_on(device: str, telemetry: Telemetry, records: Iterable[RunRecord]) -> list[ProcessStatus]:
    """The processes on a device, those of tasks first.

    A driver in a container may count as the host does; numbers that mean nothing here are then nobody's.

    Args:
        device: its UUID.
        records: the tasks that run on this machine.
    """
    tasks = {record.supervisor_pid: record for record in records}
    sampled = telemetry.latest(device)
    listed = None if sampled is None else sampled.sample.processes
    if listed is None:
        found = list(_of_tasks(device, tasks.values()))
    else:
        found = [_status(process, tasks.get(procfs.first_above(process.pid, tasks) or 0)) for process in listed]
    return sorted(found, key=lambda each: (not each.job, each.pid))[:MOST_LISTED]


def _of_tasks(device: str, records: Iterable[RunRecord]) -> Iterator[ProcessStatus]:
    """All processes of the tasks that hold a device: which of them are on it is not known."""
    for record in records:
        if device in record.devices:
            for pid in procfs.descendants(record.supervisor_pid):
                yield _status(ProcessSample(pid), record)


def _status(process: ProcessSample, record: RunRecord | None) -> ProcessStatus:
    place = f"/proc/{process.pid}"
    try:
        name, uid = read_file(f"{place}/comm").decode(errors="replace").strip(), Path(place).stat().st_uid
    except OSError:  # it is over, or its number is not one of this container
        name, uid = "", None
    return ProcessStatus(
        pid=process.pid,
        name=name,
        account="" if uid is None else _account(uid),
        job="" if record is None else record.id.job,
        task=None if record is None else record.id.task,
        foreign=record is None and uid is not None,
        use_milli=process.use_milli,
        memory_mib=process.memory_mib,
    )


def _account(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
