"""Run by the unit for tasks when the machine shuts down: ask every task to end, and give it its grace.

Without it systemd signals all processes at once, just before it kills them: a command would hear
SIGTERM where its job asked for another signal to save its work. The supervisors get the signal instead and pass it to
their commands as always. It ends when they have; systemd sees to it that it does not wait for ever. Standard library
only.

Source: systemd.service(5), ``ExecStop=``.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from millpond.node.host.cgroups import processes
from millpond.node.host.controllers import CGROUPS, MEMBERSHIP, SERVER_GROUP, TASKS_UNIT
from millpond.node.task.forkserver import SUPERVISOR


def main(environment: Mapping[str, str] = os.environ, cgroups: Path = CGROUPS, membership: Path = MEMBERSHIP) -> int:
    """Notify them, and wait until the last one has ended."""
    if "MAINPID" not in environment:
        return 0  # not a stop of the unit: the process that keeps its group was killed, which concerns no task
    ends = select.poll()
    left = 0
    for pid in _supervisors(cgroups, membership):
        with contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(pid)
            signal.pidfd_send_signal(handle, signal.SIGTERM)
            ends.register(handle, select.POLLIN)
            left += 1
    while left:
        for handle, _ in ends.poll():
            ends.unregister(handle)
            left -= 1
    return 0


def _supervisors(cgroups: Path, membership: Path) -> list[int]:
    """Those that live in the unit's group. systemd has us run in a group below it."""
    path = membership.read_text().rpartition("::")[2].strip().lstrip("/")
    unit = next((folder for folder in (cgroups / path).parents if folder.name == TASKS_UNIT), None)
    return [] if unit is None else [pid for pid in processes(unit / SERVER_GROUP) if _name(pid) == SUPERVISOR]


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""  # it has just ended


if __name__ == "__main__":
    sys.exit(main())
