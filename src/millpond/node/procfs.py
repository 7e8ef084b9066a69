"""Processes as ``/proc`` tells of them. Imported by the supervisor, hence quick to import: standard library only.

A process id alone names nothing for long, as numbers come round again; id, start time and boot together do.
Source of the fields: proc(5), ``/proc/pid/stat``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

_DEAD = ("Z", "X")


def boot_id() -> str:
    """Changes with each start of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since the boot; None when it runs no more."""
    stat = _stat(pid)
    return None if stat is None or stat[0] in _DEAD else int(stat[19])


def descendants(*pids: int) -> list[int]:
    """All living processes below these, nearest first; one look at all processes, however many are asked about."""
    children: dict[int, list[int]] = {}
    for other in _pids():
        stat = _stat(other)
        if stat is not None and stat[0] not in _DEAD:
            children.setdefault(int(stat[1]), []).append(other)
    found = [child for pid in pids for child in children.get(pid, ())]
    for parent in found:
        found.extend(children.get(parent, ()))
    return found


def cpu_s_below(pid: int) -> float:
    """Processor time in seconds of all processes below ``pid``, and of those that have ended and were waited for."""
    own = _stat(pid)
    of_ended_children = sum(map(int, own[13:15])) if own is not None else 0
    return of_ended_children / os.sysconf("SC_CLK_TCK") + cpu_s(descendants(pid))


def cpu_s(pids: Iterable[int]) -> float:
    """Processor time in seconds of these processes, and of children of theirs that have ended."""
    stats = [stat for stat in map(_stat, pids) if stat is not None]
    return sum(int(ticks) for stat in stats for ticks in stat[11:15]) / os.sysconf("SC_CLK_TCK")


def with_variable(name: str, value: str) -> list[int]:
    """All living processes that were started with ``name=value`` in their environment and are ours to see."""
    wanted = f"{name}={value}".encode()
    found = []
    for pid in _pids():
        try:
            if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(pid)
        except OSError:
            continue  # ended meanwhile, or another user's
    return found


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())


def _stat(pid: int) -> list[str] | None:
    """The fields of a process from the third (its state) on."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().decode(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
