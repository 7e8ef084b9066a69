"""Control groups of tasks: a share of the CPUs, a bound on memory and on processes for a whole tree of processes.

Both hierarchies are used, each for the controllers that it has: version 2 (one group for all of them) and version 1
(one for each). The server writes down which groups a task is to have (``controllers``); the task's supervisor makes
them, puts the task in, and removes them when it is over. The supervisor itself stays outside, so that what befalls the
task does not befall it. Standard library only.

Source: Linux documentation, admin-guide/cgroup-v2.rst and cgroup-v1/.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from millpond.node.host.device_filter import DeviceNumber, keep_off
from millpond.node.host.files import read_file
from millpond.node.host.procfs import send

_REMOVED_WITHIN_S = 5.0
_FREEZE = "cgroup.freeze"
_NO_MEMORY_LIMIT = 2**60
"""Beyond it version 1 means that there is none."""
_MEMORY_AND_SWAP = "memory.memsw.limit_in_bytes"
_MEMORY_LIMITS = ("memory.max", "memory.limit_in_bytes")


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """One control group of one task.

    Attributes:
        settings: contents of its files, by their names.
        kills: the file that counts kills for want of memory; empty: none does.
        closed: devices that its processes cannot open; of version 2 alone.
    """

    folder: str
    settings: dict[str, str] = field(default_factory=dict)
    kills: str = ""
    closed: tuple[DeviceNumber, ...] = ()


def make(groups: Sequence[ControlGroup]) -> None:
    """Make a task's groups.

    Raises:
        OSError: the kernel refuses; the error is never one that could be the command's own.
    """
    for group in groups:
        folder = Path(group.folder)
        try:
            folder.mkdir(exist_ok=True)
            for name, value in group.settings.items():
                write(folder / name, value)
            if group.closed:
                keep_off(folder, group.closed)
        except OSError as error:
            raise OSError(errno.EAGAIN, f"its control group cannot be made ({error.strerror})", str(folder)) from error


def join(groups: Sequence[ControlGroup]) -> None:
    """Put the calling process, and so all that it starts, into a task's groups."""
    for group in groups:
        write(Path(group.folder, "cgroup.procs"), "0")


def move(pid: int, folder: Path) -> None:
    """Put a process, and so all that it starts from now on, into a group.

    Raises:
        OSError: the kernel refuses, or the process is gone.
    """
    write(folder / "cgroup.procs", str(pid))


def processes(folder: Path) -> list[int]:
    """Who is in a group, those below it not counted."""
    return [int(line) for line in read(folder / "cgroup.procs").split()]


def kills(groups: Sequence[ControlGroup]) -> int:
    """How many of a task's processes the kernel has killed as they wanted more memory than the group has."""
    return sum(kill_count(Path(group.folder, group.kills)) for group in groups if group.kills)


def kill_count(counter: Path) -> int:
    """Kills for want of memory so far, by the kernel's ``oom_kill`` line; 0 when it keeps none."""
    try:
        lines = read_file(counter).splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(b"oom_kill ")), 0)


def bound(folders: Iterable[str], limit_bytes: int) -> None:
    """Give the control groups of a task another limit; those without one for memory stay as they are.

    A bound of version 1 on memory and swap space together, as runtimes of containers set it, goes along. It may never
    be the lower of the two, so it is tried first, which raises it, and last, which lowers it.
    """
    for folder in folders:
        with_swap = () if _bytes(Path(folder, _MEMORY_AND_SWAP)) is None else (_MEMORY_AND_SWAP,)
        for names in (with_swap, _MEMORY_LIMITS, with_swap):
            _set((folder,), names, str(limit_bytes))


def memory_limit(folder: str) -> int | None:
    """The most memory that a group may have, in bytes; None where it has no bound."""
    found = (_bytes(Path(folder, name)) for name in _MEMORY_LIMITS)
    return next((limit for limit in found if limit is not None), None)


def freeze(folders: Sequence[str]) -> bool:
    """Ask the kernel to halt what is in these groups; False when it cannot. It takes a moment: see ``is_frozen``.

    Only groups of version 2 can (``cgroup.freeze``): no process in them runs, nor can one be forked past us. What has
    none is halted process by process (``node.task.runner.freeze``).
    """
    return _set(folders, [_FREEZE], "1")


def thaw(folders: Sequence[str]) -> None:
    """Let it go on."""
    _set(folders, [_FREEZE], "0")


def is_frozen(folders: Sequence[str]) -> bool:
    """Whether all that is in these groups stands."""
    return any("frozen 1" in read(Path(folder, "cgroup.events")).splitlines() for folder in folders)


def remove(folders: Sequence[str]) -> None:
    """End whatever is left in a task's groups, and remove them; what cannot be removed in time is left behind."""
    give_up = time.monotonic() + _REMOVED_WITHIN_S
    _set(folders, ["pids.max"], "0")  # stops what forks faster than it is killed
    left = [Path(folder) for folder in folders]
    while left and time.monotonic() < give_up:
        left = [folder for folder in left if not _removed(folder)]
        if left:
            time.sleep(0.002)


def write(path: Path, text: str) -> None:
    """Write to a file of the kernel's, at once.

    Raises:
        OSError: it refuses.
    """
    handle = os.open(path, os.O_WRONLY)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)


def read(path: Path) -> str:
    """A file of the kernel's; empty where this hierarchy has no such file, or it is not ours to read."""
    try:
        return path.read_text()
    except OSError:
        return ""


def _bytes(path: Path) -> int | None:
    """What a file says of the most memory; None where it says that there is no bound, or is missing."""
    said = read(path).strip()
    return int(said) if said.isdecimal() and int(said) < _NO_MEMORY_LIMIT else None


def _set(folders: Iterable[str], names: Sequence[str], value: str) -> bool:
    """Write to the files of these names where groups have them; whether one was written."""
    done = False
    for path in (Path(folder, name) for folder in folders for name in names):
        if path.is_file():
            with contextlib.suppress(OSError):  # the task has just ended, and its group with it
                path.write_text(value)
                done = True
    return done


def _removed(folder: Path) -> bool:
    send(processes(folder), signal.SIGKILL)
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
