"""Entering the sandbox of a running task, for what is to run beside it. Standard library only.

Source: setns(2), in the form that takes a pidfd (Linux 5.8), and namespaces(7).
"""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path

from millpond.node.host import procfs

_KINDS = {
    "user": 0x10000000,
    "mnt": 0x00020000,
    "ipc": 0x08000000,
    "pid": 0x20000000,
    "net": 0x40000000,
}  # linux/sched.h, CLONE_NEW*
_PR_SET_NO_NEW_PRIVS = 38  # linux/prctl.h
_SET_UP_WITHIN_S = 5.0

_libc = ctypes.CDLL(None, use_errno=True)


def enter_sandbox(outermost: int) -> None:
    """Have this process see what a sandboxed task sees; what it starts from now on has the task's process numbers too.

    Args:
        outermost: process id of the sandbox's own program.

    Raises:
        OSError: the task has ended, or the kernel does not let us in.
    """
    inside = _somebody_inside(outermost)
    handle = os.pidfd_open(inside)
    root = os.open(f"/proc/{inside}/root", os.O_PATH | os.O_DIRECTORY)
    kinds = 0
    for name, flag in _KINDS.items():
        # The kernel refuses to enter the user namespace that one is in already.
        if Path(f"/proc/{inside}/ns/{name}").readlink() != Path(f"/proc/self/ns/{name}").readlink():
            kinds |= flag
    if _libc.setns(handle, kinds) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"the task's sandbox cannot be entered: {os.strerror(number)}")
    os.fchdir(root)
    os.chroot(".")
    os.close(root)
    os.close(handle)
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def _somebody_inside(outermost: int) -> int:
    """A process of the task: below the sandbox's program and its first child, which sets the sandbox up."""
    give_up = time.monotonic() + _SET_UP_WITHIN_S
    while time.monotonic() < give_up:
        _, *inside = procfs.descendants(outermost) or [0]
        if inside:
            return inside[0]
        time.sleep(0.01)
    raise ProcessLookupError(f"nothing runs in the sandbox of process {outermost}")
