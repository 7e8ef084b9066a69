"""The memory control groups that this process and its tasks live in: their limit, and how often memory ran out there.

Both hierarchies are read: version 2 (``memory.max``, ``memory.events``) and version 1 (``memory.limit_in_bytes``,
``memory.oom_control``). Source: Linux documentation, admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable
from pathlib import Path

from millpond.node.host.cgroups import for_tasks

_CGROUPS = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")
WHOLE_MACHINE = Path("/proc/vmstat")
"""Counts kills in all groups, those too that are gone again by the time of a query."""


def limit_bytes(cgroups: Path = _CGROUPS, membership: Path = _MEMBERSHIP) -> int | None:
    """The most memory that all tasks together may use; None without a limit."""
    limits = []
    for directory, name in _places(cgroups, membership, "memory.max", "memory.limit_in_bytes"):
        text = _read(for_tasks(directory) / name).strip()
        if text.isdecimal():
            limits.append(int(text))
    return min(limits, default=None)


def bound(folders: Iterable[str], mib: int) -> None:
    """Give the control groups of a task another limit; those without one for memory stay as they are."""
    for folder in folders:
        for name in ("memory.max", "memory.limit_in_bytes"):
            path = Path(folder, name)
            if path.is_file():
                with contextlib.suppress(OSError):  # the task has just ended, and its group with it
                    path.write_text(str(mib * 2**20))


def kill_counter(cgroups: Path = _CGROUPS, membership: Path = _MEMBERSHIP) -> Path:
    """The file whose ``oom_kill`` line counts kills in our group; the whole machine's where the group has none."""
    for directory, name in _places(cgroups, membership, "memory.events", "memory.oom_control"):
        if "oom_kill " in _read(directory / name):
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
    for line in _read(membership).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            places += [(cgroups / path.lstrip("/"), version_2), (cgroups, version_2)]
        elif "memory" in controllers.split(","):
            places += [(cgroups / "memory" / path.lstrip("/"), version_1), (cgroups / "memory", version_1)]
    return places


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""  # no such file in this hierarchy, or not ours to read
