"""Whether processes other than the server's tasks use a device."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from millpond.model.devices import DeviceHealth
from millpond.node.devices.vendor import OwnProcesses

_MOST_NAMED = 3


def used_by(device: str, pids: Collection[int], ours: OwnProcesses) -> tuple[DeviceHealth, str]:
    """The health of a device that is well otherwise, by the processes on it, and who they are.

    Args:
        device: its UUID.
    """
    foreign = set(pids) - ours.pids
    if device in ours.devices:
        # Inside a container the driver numbers processes as the host does; numbers that mean nothing here
        # are then our own tasks, as the device is theirs.
        foreign = {pid for pid in foreign if Path(f"/proc/{pid}").exists()}
    if not foreign:
        return DeviceHealth.OK, ""
    named = ", ".join(_process(pid) for pid in sorted(foreign)[:_MOST_NAMED])
    more = f" and {len(foreign) - _MOST_NAMED} more" if len(foreign) > _MOST_NAMED else ""
    return DeviceHealth.BUSY_ELSEWHERE, f"used by {named}{more}"


def _process(pid: int) -> str:
    try:
        return f"process {pid} ({Path(f'/proc/{pid}/comm').read_text().strip()})"
    except OSError:
        return f"process {pid}"  # it is gone, or belongs to another container
