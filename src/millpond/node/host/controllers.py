"""The control groups that this server is in: where groups for tasks can be made, and which limits apply to all of them.

A manager of a machine expects its groups to be left alone. Unless configured otherwise the server therefore uses a
group only where it was handed to us: systemd marks what ``Delegate=yes`` gives away with an extended attribute. The
installed service has a unit for that which is not the server's (``TASKS_UNIT``; systemd 252 does not mark a user's): a
group of version 2 that has been divided takes no process any more, so systemd could not start a server again in a group
below which tasks still run.

Source: Linux documentation, admin-guide/cgroup-v2.rst and cgroup-v1/; https://systemd.io/CGROUP_DELEGATION.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from millpond.node.host.cgroups import ControlGroup, move, processes, read, write
from millpond.node.host.device_filter import DeviceNumber, trouble
from millpond.node.host.procfs import descendants

CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
TASKS_UNIT = "millpond-tasks.service"
"""The unit beside the server's whose group is there for tasks; the server is not in it."""
SERVER_GROUP = "server"
"""Where what is no task lives below a group of version 2 that is divided: no processes beside groups there."""

_CONTROLLERS = ("memory", "cpu", "pids", "dmem")
_DELEGATED = ("trusted.delegate", "user.delegate")
_PERIOD_US = 100_000
_CPU_SHARES, _CPU_WEIGHT = 1024, 100
"""What one CPU weighs, in version 1 and 2: the kernel's own defaults."""
WHOLE_MACHINE = Path("/proc/vmstat")
"""Counts kills in all groups, those too that are gone again by the time of a query."""


class GroupMode(Enum):
    """Whether tasks get control groups."""

    AUTO = "auto"
    """Where the server's own group was handed to it."""
    ALWAYS = "always"
    """Wherever its own group can be written."""
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Amounts:
    """What a task is kept to.

    Attributes:
        cpu_milli: its share of the CPUs where others want them too.
        memory_mib: 0 is no bound.
        processes: the most it may have, threads included; 0 is no bound.
        cpu_is_bound: it gets no more CPU time than that, even on idle CPUs.
        device_memory_mib: of one device at the most, by the kernel's name for its memory (``device_memory``).
        closed: devices that it cannot open.
    """

    cpu_milli: int
    memory_mib: int
    processes: int = 0
    cpu_is_bound: bool = False
    device_memory_mib: Mapping[str, int] = field(default_factory=dict)
    closed: tuple[DeviceNumber, ...] = ()


@dataclass(frozen=True, slots=True)
class Controllers:
    """Where groups can be made.

    Attributes:
        folders: by controller, the version of its hierarchy and the group below which ours belong.
    """

    folders: Mapping[str, tuple[int, Path]] = field(default_factory=dict)

    def groups(self, name: str, amounts: Amounts) -> tuple[ControlGroup, ...]:
        """The groups of one task, which its supervisor makes."""
        found: dict[Path, ControlGroup] = {}
        for controller, (version, above) in self.folders.items():
            group = found.get(above / name, ControlGroup(str(above / name)))
            settings = {**group.settings, **_SETTINGS[version, controller](amounts)}
            kills = _KILLS[version] if controller == "memory" else group.kills
            closed = amounts.closed if version == 2 else ()
            found[above / name] = ControlGroup(group.folder, settings, kills, closed)
        return tuple(found.values())

    @property
    def trouble_with_devices(self) -> str:
        """Why tasks cannot be kept off devices; empty: they can."""
        folder = next((folder for version, folder in self.folders.values() if version == 2), None)
        return "its control groups are those of version 1" if folder is None else trouble(folder)

    @property
    def leaf(self) -> Path | None:
        """Where supervisors live, beside the groups of their tasks; None: with the server."""
        return next((folder / SERVER_GROUP for version, folder in self.folders.values() if version == 2), None)


def find_controllers(
    mode: GroupMode, cgroups: Path = CGROUPS, membership: Path = MEMBERSHIP
) -> tuple[Controllers | None, str]:
    """Where groups for tasks can be made, or why nowhere. Changes nothing."""
    if mode is GroupMode.OFF:
        return None, "switched off"
    places = _own_groups(cgroups, membership)
    if not places:
        return None, "no control groups are mounted here"
    if mode is GroupMode.AUTO and not any(_is_delegated(folder) for _, folder in places.values()):
        return None, "the server's own control group was not handed to it"
    usable = {name: (version, folder) for name, (version, folder) in places.items() if os.access(folder, os.W_OK)}
    crowded = next((folder for version, folder in usable.values() if version == 2 and _foreign_processes(folder)), None)
    if crowded is not None:
        return None, f"the server shares its control group {crowded} with other programs"
    if "memory" not in usable:
        return None, "its control group of memory cannot be written"
    return Controllers(usable), ""


def open_for_groups(controllers: Controllers) -> None:
    """Make groups of version 2 possible below these: their processes move one down, then the controllers are let in.

    Raises:
        OSError: the kernel refuses.
    """
    by_folder: dict[Path, list[str]] = {}
    for name, (version, folder) in controllers.folders.items():
        if version == 2:
            by_folder.setdefault(folder, []).append(name)
    for folder, names in by_folder.items():
        if not _is_root(folder):
            leaf = folder / SERVER_GROUP
            leaf.mkdir(exist_ok=True)
            for pid in processes(folder):
                move(pid, leaf)
        write(folder / "cgroup.subtree_control", " ".join(f"+{name}" for name in names))


def memory_limit_bytes(cgroups: Path = CGROUPS, membership: Path = MEMBERSHIP) -> int | None:
    """The most memory that all tasks together may use; None without a limit."""
    limits = []
    for directory, name in _places(cgroups, membership, "memory.max", "memory.limit_in_bytes"):
        text = read(_for_tasks(directory) / name).strip()
        if text.isdecimal():
            limits.append(int(text))
    return min(limits, default=None)


def kill_counter(cgroups: Path = CGROUPS, membership: Path = MEMBERSHIP) -> Path:
    """The file whose ``oom_kill`` line counts kills in our group; the whole machine's where the group has none."""
    for directory, name in _places(cgroups, membership, "memory.events", "memory.oom_control"):
        if "oom_kill " in read(directory / name):
            return directory / name
    return WHOLE_MACHINE


@functools.cache
def own_kill_counter() -> Path:
    """That of this process, which stays in the groups in which it began to start tasks."""
    return kill_counter()


def _places(cgroups: Path, membership: Path, version_2: str, version_1: str) -> list[tuple[Path, str]]:
    """Directories of our group, each with the file of that name in its hierarchy.

    A container sees its own group as the root of the mounted tree, whatever its path on the host: both are tried.
    """
    places = []
    for line in read(membership).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            places += [(cgroups / path.lstrip("/"), version_2), (cgroups, version_2)]
        elif "memory" in controllers.split(","):
            places += [(cgroups / "memory" / path.lstrip("/"), version_1), (cgroups / "memory", version_1)]
    return places


def _for_tasks(own: Path) -> Path:
    """The group of the unit for tasks, where one is up beside ours."""
    beside = own.parent / TASKS_UNIT
    return beside if beside.is_dir() else own


def _memory_1(amounts: Amounts) -> dict[str, str]:
    return {"memory.limit_in_bytes": str(amounts.memory_mib * 2**20)} if amounts.memory_mib else {}


def _memory_2(amounts: Amounts) -> dict[str, str]:
    return {"memory.max": str(amounts.memory_mib * 2**20)} if amounts.memory_mib else {}


def _cpu_1(amounts: Amounts) -> dict[str, str]:
    settings = {"cpu.shares": str(min(max(amounts.cpu_milli * _CPU_SHARES // 1000, 2), 262_144))}
    if amounts.cpu_is_bound:
        settings |= {"cpu.cfs_period_us": str(_PERIOD_US), "cpu.cfs_quota_us": str(_quota_us(amounts))}
    return settings


def _cpu_2(amounts: Amounts) -> dict[str, str]:
    settings = {"cpu.weight": str(min(max(amounts.cpu_milli * _CPU_WEIGHT // 1000, 1), 10_000))}
    return settings | ({"cpu.max": f"{_quota_us(amounts)} {_PERIOD_US}"} if amounts.cpu_is_bound else {})


def _quota_us(amounts: Amounts) -> int:
    """CPU time in each period; the kernel takes no less than a millisecond."""
    return max(amounts.cpu_milli * _PERIOD_US // 1000, 1_000)


def _pids(amounts: Amounts) -> dict[str, str]:
    return {"pids.max": str(amounts.processes)} if amounts.processes else {}


def _dmem(amounts: Amounts) -> dict[str, str]:
    """Of one device: the file takes a region and its limit at a time."""
    bound = next(iter(amounts.device_memory_mib.items()), None)
    return {} if bound is None else {"dmem.max": f"{bound[0]} {bound[1] * 2**20}"}


_KILLS = {1: "memory.oom_control", 2: "memory.events"}
_SETTINGS: Mapping[tuple[int, str], Callable[[Amounts], dict[str, str]]] = {
    (1, "memory"): _memory_1,
    (2, "memory"): _memory_2,
    (1, "cpu"): _cpu_1,
    (2, "cpu"): _cpu_2,
    (1, "pids"): _pids,
    (2, "pids"): _pids,
    (2, "dmem"): _dmem,
}


def _own_groups(cgroups: Path, membership: Path) -> dict[str, tuple[int, Path]]:
    """The group below which those of tasks belong, by controller: of their unit, else the one that we are in."""
    found: dict[str, tuple[int, Path]] = {}
    for line in read(membership).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers:
            for name in set(controllers.split(",")) & set(_CONTROLLERS):
                folder = _existing(cgroups / name, path)
                if folder is not None:
                    found[name] = (1, _for_tasks(folder))
            continue
        for mount in (cgroups, cgroups / "unified"):
            folder = _existing(mount, path)
            if folder is None or not (folder / "cgroup.controllers").is_file():
                continue
            folder = _for_tasks(folder.parent if folder.name == SERVER_GROUP else folder)
            for name in set(read(folder / "cgroup.controllers").split()) & set(_CONTROLLERS):
                found.setdefault(name, (2, folder))
    return {name: found[name] for name in _CONTROLLERS if name in found}


def _existing(mount: Path, path: str) -> Path | None:
    """Our group in a mounted hierarchy; a container sees its own group as the root, whatever its path outside."""
    return next((folder for folder in (mount / path.lstrip("/"), mount) if folder.is_dir()), None)


def _is_delegated(folder: Path) -> bool:
    if folder.name == TASKS_UNIT:
        return True
    for name in _DELEGATED:
        with contextlib.suppress(OSError):
            if os.getxattr(folder, name) == b"1":
                return True
    return False


def _is_root(folder: Path) -> bool:
    return not (folder / "cgroup.type").exists()  # which every group but the root has


def _foreign_processes(folder: Path) -> list[int]:
    """Processes beside us in a group of version 2 that are not our own; in that of the tasks' unit there are none."""
    if _is_root(folder) or folder.name == TASKS_UNIT:
        return []
    own = {os.getpid(), *descendants(os.getpid())}
    return [pid for pid in processes(folder) if pid not in own]
