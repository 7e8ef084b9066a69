"""Halting a control group as a whole: no process in it runs, nor can one be forked past us.

Only groups of version 2 can (``cgroup.freeze``); what has none is halted process by process
(``node.task.runner.freeze``). Imported by the supervisor, hence the standard library alone.

Source: Linux documentation, admin-guide/cgroup-v2.rst.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

_SWITCH = "cgroup.freeze"


def freeze(folders: Sequence[str]) -> bool:
    """Ask the kernel to halt what is in these groups; False when it cannot. It takes a moment: see ``is_frozen``."""
    return _switch(folders, "1")


def thaw(folders: Sequence[str]) -> None:
    """Let it go on."""
    _switch(folders, "0")


def is_frozen(folders: Sequence[str]) -> bool:
    """Whether all that is in these groups stands."""
    for folder in folders:
        with contextlib.suppress(OSError):
            if "frozen 1" in Path(folder, "cgroup.events").read_text().splitlines():
                return True
    return False


def _switch(folders: Sequence[str], value: str) -> bool:
    done = False
    for folder in folders:
        path = Path(folder, _SWITCH)
        if path.is_file():
            with contextlib.suppress(OSError):  # the task has just ended, and its group with it
                path.write_text(value)
                done = True
    return done
