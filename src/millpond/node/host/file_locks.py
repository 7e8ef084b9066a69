"""Which process holds the lock of a file (flock(2)), as ``/proc`` lists what processes have open."""

from __future__ import annotations

from pathlib import Path

from millpond.node.host import procfs


def is_held_by(pid: int, lock: Path) -> bool:
    """Whether a process has taken the lock of this file; false of one that has ended, or is another account's."""
    try:
        opened = [file for file in Path(f"/proc/{pid}/fd").iterdir() if file.exists() and file.samefile(lock)]
        noted = [Path(f"/proc/{pid}/fdinfo/{file.name}").read_text().splitlines() for file in opened]
    except OSError:
        return False
    # A child that was forked has the file too: the kernel says of each lock which process took it (proc(5)).
    return any("FLOCK" in line and str(pid) in line.split() for lines in noted for line in lines)


def holder_of(lock: Path) -> int | None:
    """The process that has taken the lock of this file; None when none has. Looks at all processes of the machine."""
    return next((pid for pid in procfs.pids() if is_held_by(pid, lock)), None)
