"""The C library of this process, for calls of the kernel that Python has no function for. Standard library only."""

from __future__ import annotations

import ctypes
import os

PR_SET_PDEATHSIG = 1
PR_SET_NO_NEW_PRIVS = 38
"""Of linux/prctl.h."""

libc = ctypes.CDLL(None, use_errno=True)


def last_error(what: str) -> OSError:
    """Why the last call of this thread has failed.

    Args:
        what: could not be done.
    """
    number = ctypes.get_errno()
    return OSError(number, f"{what}: {os.strerror(number)}")
