"""Ends builds before they are done.

Podman that gets a signal leaves the container that a build works in, and the files of the moment, which nobody removes
later. It removes both where a step fails. So what a step runs is killed, and podman ends by itself.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from millpond.node.host import procfs
from millpond.node.host.files import read_file

_TIDIES_WITHIN_S: Final = 10.0
_LOOK_AGAIN_S: Final = 0.1


def end_build(pid: int) -> None:
    """End a build; of one that does not come to its end by that, the program itself after ten seconds.

    Args:
        pid: of the program that builds.
    """
    began, until = procfs.start_ticks(pid), time.monotonic() + _TIDIES_WITHIN_S
    while began is not None and procfs.start_ticks(pid) == began:
        if time.monotonic() >= until:
            procfs.send([pid], signal.SIGTERM)
            return
        procfs.send(_inside(pid), signal.SIGKILL)
        time.sleep(_LOOK_AGAIN_S)


def end_builds_from(folder: Path) -> None:
    """End what a server that was killed began to build from a folder."""
    begins = f"{folder}{os.sep}".encode()
    for pid in procfs.pids():
        with suppress(OSError):  # it is over
            words = read_file(f"/proc/{pid}/cmdline").split(b"\0")
            if b"build" in words and any(word.startswith(begins) for word in words):
                end_build(pid)


def _inside(pid: int) -> list[int]:
    """The processes below a program that have another root directory than it: those in its containers."""
    outer = _root(pid)
    return [each for each in procfs.descendants(pid) if _root(each) not in (outer, None)]


def _root(pid: int) -> tuple[int, int] | None:
    """None: it is over, or not ours to see."""
    try:
        found = Path(f"/proc/{pid}/root/").stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
