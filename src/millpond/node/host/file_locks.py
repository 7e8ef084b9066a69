"""Find the process that holds the lock of a file (flock(2)), as ``/proc`` lists what processes have open."""

from __future__ import annotations

from pathlib import Path

from millpond.node.host import procfs


def is_held_by(pid: int, lock: Path) -> bool:
    """Whether a process holds the lock of this file, its own or its parent's; false of one that has ended, or that is
    another account's."""
    return bool(_takers(pid, lock))


def holder_of(lock: Path) -> int | None:
    """The process that has taken the lock of this file; None when none has, or it has ended. Looks at all processes of
    the machine."""
    return next((pid for pid in procfs.pids() if pid in _takers(pid, lock)), None)


def _takers(pid: int, lock: Path) -> list[int]:
    """Who took the locks of this file that a process holds: it may have been forked since (proc(5), ``fdinfo``)."""
    try:
        opened = [file for file in Path(f"/proc/{pid}/fd").iterdir() if file.exists() and file.samefile(lock)]
        lines = [Path(f"/proc/{pid}/fdinfo/{file.name}").read_text().splitlines() for file in opened]
    except OSError:
        return []
    locks = (line.partition("FLOCK")[2].split() for noted in lines for line in noted)
    return [int(words[2]) for words in locks if words]
