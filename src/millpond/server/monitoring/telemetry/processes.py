"""The processes on a device: as its driver lists them, else those of the tasks that hold it."""

from __future__ import annotations

import pwd
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from millpond.model.hardware.telemetry import ProcessSample
from millpond.node.host import procfs
from millpond.node.task.records import RunRecord
from millpond.server.monitoring.telemetry.sampling import Telemetry
from millpond.specs.api.pool.nodes import ProcessStatus

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
    place = Path(f"/proc/{process.pid}")
    try:
        name, uid = (place / "comm").read_text().strip(), place.stat().st_uid
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
