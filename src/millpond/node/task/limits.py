"""Keep a task to its CPUs and memory: by a control group where one can be had, else by less.

Without a control group, and with one that has no say about CPUs (as systemd may leave it to users), a task is pinned to
as many CPUs as it asked for, those first that the fewest others have. Without any, and where it said how much memory it
wants and uses no cards (whose drivers map far more than they use), each of its processes may have that much data.
Several processes together may then exceed it: nothing but the kernel's last resort ends them.

Without a control group the kernel counts processes by account (``RLIMIT_NPROC``, getrlimit(2)), since Linux 5.14 within
a user namespace. A sandbox that is not made by root is one, so its task has a bound of its own. Elsewhere all tasks of
an account have one bound together, and root has none.
"""

from __future__ import annotations

import functools
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from millpond.model.confinement import LimitKind
from millpond.model.hardware.devices import Device
from millpond.node.host.controllers import Amounts, Controllers
from millpond.node.host.device_filter import DeviceNumber
from millpond.node.host.files import read_file
from millpond.node.task.start_plan import ProcessLimits

REMEDY = (
    "run the server as a service that is given its control group (`pond service install`), or where its group is its "
    "own, as in a container, start it with --control-groups always"
)


_COUNTED_BY_NAMESPACE = (5, 14)
"""The release of Linux from which on it does."""


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """What one task is kept to, and by what.

    Attributes:
        process: what its supervisor puts into force; ``processes`` as the job asks for it.
    """

    kind: LimitKind = LimitKind.UNKNOWN
    memory_mib: int = 0
    process: ProcessLimits = ProcessLimits()

    def in_force(self, apart: bool) -> ProcessLimits:
        """What its supervisor puts into force, with the bound on processes as the kernel counts them.

        Args:
            apart: the task is in a user namespace of its own.
        """
        processes = self.process.processes
        if processes is None or (apart and _counts_by_namespace()):
            return self.process
        return replace(self.process, processes=_of_account(processes))


NO_LIMITS = TaskLimits()


@dataclass(frozen=True, slots=True)
class Limiter:
    """How this machine keeps tasks to their amounts.

    Attributes:
        controllers: None: there are no control groups for tasks.
        trouble: why there are none; empty when there are.
        pins: tasks may be pinned to CPUs; not where the CPUs of the pool are pretended.
        cards: the device files of whole cards, by UUID, where tasks are kept off those of others.
        open_to_all: why they are not, where they should be.
    """

    controllers: Controllers | None = None
    trouble: str = ""
    pins: bool = False
    cards: Mapping[str, DeviceNumber] = field(default_factory=dict)
    open_to_all: str = ""

    def closed_to(self, devices: Iterable[Device]) -> tuple[DeviceNumber, ...]:
        """What a task with these devices cannot open."""
        own = {device.parent or device.uuid for device in devices}
        return tuple(number for card, number in sorted(self.cards.items()) if card not in own)

    @property
    def supervisors(self) -> Path | None:
        """The control group where supervisors live; None: with the server."""
        return None if self.controllers is None else self.controllers.leaf

    def limits(self, name: str, amounts: Amounts, said_memory: bool, pinned: Iterable[Sequence[int]]) -> TaskLimits:
        """What one task gets.

        Args:
            name: of its control group; no other task has it.
            said_memory: the bound on memory is its own request, and it uses no cards.
            pinned: the CPUs that running tasks are pinned to.
        """
        shares = self.controllers is not None and "cpu" in self.controllers.folders
        cpus = _least_used(amounts.cpu_milli, pinned) if self.pins and not shares else ()
        processes = amounts.processes or None
        if self.controllers is not None:
            groups = self.controllers.groups(name, amounts)
            counted = "pids" in self.controllers.folders
            process = ProcessLimits(groups, cpus, None, None if counted else processes)
            return TaskLimits(LimitKind.CONTROL_GROUP, amounts.memory_mib, process)
        data = amounts.memory_mib * 2**20 if said_memory and amounts.memory_mib else None
        return TaskLimits(LimitKind.PROCESS, 0, ProcessLimits((), cpus, data, processes))


def _least_used(cpu_milli: int, pinned: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """As many CPUs as were asked for, rounded up; none when that is all of them."""
    there = sorted(os.sched_getaffinity(0))
    wanted = max(-(-cpu_milli // 1000), 1)
    if wanted >= len(there):
        return ()
    used = Counter(cpu for cpus in pinned for cpu in cpus)
    return tuple(sorted(sorted(there, key=lambda cpu: (used[cpu], cpu))[:wanted]))


@functools.cache
def _counts_by_namespace() -> bool:
    """Whether the kernel counts the processes of a user namespace by themselves."""
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return found is not None and (int(found[1]), int(found[2])) >= _COUNTED_BY_NAMESPACE


def _of_account(processes: int) -> int:
    """The bound of all tasks of an account together: a task on each CPU may have its own, the machine keeps half."""
    most = [int(read_file(f"/proc/sys/kernel/{name}")) for name in ("pid_max", "threads-max")]
    return max(min(processes * (os.cpu_count() or 1), min(most) // 2), processes)
