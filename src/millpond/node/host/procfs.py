"""Processes as ``/proc`` lists them. Imported by the supervisor, hence quick to import: standard library only.

A process id alone names nothing for long, as numbers come round again; id, start time and boot together do.
Source of the fields: proc(5), ``/proc/pid/stat``.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from millpond.node.host.files import read_file

_DEAD = ("Z", "X")
_STOPPED = ("T", "t")
_WAITS_IN_KERNEL = "D"


@cache
def boot_id() -> str:
    """Changes with each start of the machine."""
    return read_file("/proc/sys/kernel/random/boot_id").decode().strip()


def start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since the boot; None when it runs no more."""
    stat = _stat(pid)
    return None if stat is None or _is_over(stat) else int(stat[19])


def is_ending(pid: int) -> bool:
    """Whether a process has ended or does, as its first thread has: of a killed one, others let go a moment later."""
    stat = _stat(pid)
    return stat is None or stat[0] in _DEAD


def _is_over(stat: Sequence[str]) -> bool:
    """Whether a process has ended: with its first thread (``pthread_exit``) alone it has not."""
    return stat[0] in _DEAD and int(stat[17]) < 2


def descendants(*pids: int) -> list[int]:
    """All living processes below these, nearest first.

    One that ends while we look may hide another, so who must find every single one looks again until none is left.
    Where the kernel lists each thread's children (``CONFIG_PROC_CHILDREN``, proc(5)) no other process is looked at: a
    machine full of processes makes nothing slower. Elsewhere it takes one look at all there are.
    """
    return _walk(pids, _children_of) if _lists_children() else below(pids, children())


def children() -> dict[int, list[int]]:
    """All living processes of the machine, by their parent."""
    found: dict[int, list[int]] = {}
    for pid in pids():
        stat = _stat(pid)
        if stat is not None and not _is_over(stat):
            found.setdefault(int(stat[1]), []).append(pid)
    return found


def first_above(pid: int, wanted: Container[int]) -> int | None:
    """The nearest of the wanted processes that ``pid`` is, or stands below; None when there is none."""
    while pid > 0:
        if pid in wanted:
            return pid
        stat = _stat(pid)
        pid = 0 if stat is None else int(stat[1])
    return None


def below(pids: Iterable[int], by_parent: Mapping[int, Sequence[int]]) -> list[int]:
    """As ``descendants``, among the processes that ``children`` has seen."""
    return _walk(pids, lambda pid: by_parent.get(pid, ()))


def is_halted(pid: int) -> bool:
    """Whether no thread of a process runs its program before it is continued; true of one that is over.

    A thread has stopped (SIGSTOP, or a debugger), or it waits in the kernel and stops on its way back. The latter can
    last: a process that has called vfork(2) waits for a child that was halted before it could become another program.
    Shells start commands that way, and so does Python's ``subprocess``.
    """
    try:
        threads = [int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return True
    stats = [_fields(f"/proc/{pid}/task/{thread}/stat") for thread in threads]
    states = {stat[0] for stat in stats if stat is not None and stat[0] not in _DEAD}
    going = states.difference(_STOPPED)
    return not going or (going == {_WAITS_IN_KERNEL} and (going != states or _is_to_stop(pid)))


def _is_to_stop(pid: int) -> bool:
    """Whether a SIGSTOP waits for a process: it acts before the program goes on."""
    return _is_marked(pid, signal.SIGSTOP, ("SigPnd:", "ShdPnd:"))


def ignores(pid: int, number: int) -> bool:
    """Whether a signal that a process is sent is lost; true of one that is over."""
    return _is_marked(pid, number, ("SigIgn:",))


def _is_marked(pid: int, number: int, masks: tuple[str, ...]) -> bool:
    """Whether a signal is in one of these masks of a process; true of one that is over."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return True
    return any(int(line.split()[1], 16) >> (number - 1) & 1 for line in lines if line.startswith(masks))


def cpu_s_below(pid: int) -> float:
    """Processor time in seconds of all processes below ``pid``, and of those that have ended and were waited for."""
    own = _stat(pid)
    of_ended_children = sum(map(int, own[13:15])) if own is not None else 0
    return of_ended_children / os.sysconf("SC_CLK_TCK") + cpu_s(descendants(pid))


def cpu_s(pids: Iterable[int]) -> float:
    """Processor time in seconds of these processes, and of children of theirs that have ended."""
    stats = [stat for stat in map(_stat, pids) if stat is not None]
    return sum(int(ticks) for stat in stats for ticks in stat[11:15]) / os.sysconf("SC_CLK_TCK")


def available_mib() -> int:
    """Memory of the machine that can be had without pushing others out (``MemAvailable``)."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")) // 1024


def send(pids: Iterable[int], number: int) -> None:
    """Send a signal to processes, negative numbers being process groups.

    One that has ended, or has become another user's (sudo), is left out.
    """
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def with_variable(name: str, value: str) -> list[int]:
    """All living processes that were started with ``name=value`` in their environment and are ours to see."""
    wanted = f"{name}={value}".encode()
    found = []
    for pid in pids():
        with suppress(OSError):  # ended meanwhile, or another user's
            if wanted in _environment(pid).split(b"\0"):
                found.append(pid)
    return found


def _environment(pid: int) -> bytes:
    """With what a process was started; where its first thread has ended, another one tells it."""
    try:
        return read_file(f"/proc/{pid}/environ")
    except (ProcessLookupError, PermissionError):  # the latter where this is not root: the file is root's then
        last = max((int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir()), default=pid)
        return read_file(f"/proc/{pid}/task/{last}/environ")


def _walk(pids: Iterable[int], children_of: Callable[[int], Sequence[int]]) -> list[int]:
    found: dict[int, None] = {}
    level = list(pids)
    while level:
        level = [child for pid in level for child in children_of(pid) if child not in found]
        found.update(dict.fromkeys(level))
    return list(found)


@cache
def _lists_children() -> bool:
    return Path("/proc/thread-self/children").exists()


def _children_of(pid: int) -> list[int]:
    """The living children of all threads of a process; none when it is over."""
    listed = []
    with suppress(OSError), os.scandir(f"/proc/{pid}/task") as threads:  # it is over
        for thread in threads:
            with suppress(OSError):  # that thread is
                listed += read_file(f"{thread.path}/children").split()
    return [child for child in map(int, listed) if start_ticks(child) is not None]


def pids() -> Iterator[int]:
    """All processes of the machine, those too that have just ended."""
    return (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())


def _stat(pid: int) -> list[str] | None:
    """The fields of a process from the third (its state) on."""
    return _fields(f"/proc/{pid}/stat")


def _fields(stat: str) -> list[str] | None:
    try:
        return read_file(stat).decode(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
