"""No program of a measurement outlives who started it, whatever ended that."""

from __future__ import annotations

import ctypes
import os
import signal

_ON_PARENTS_DEATH = 1
"""PR_SET_PDEATHSIG of prctl(2)."""


def end_with(parent: int, number: signal.Signals) -> None:
    """Be sent this signal when the parent ends.

    Args:
        parent: its process id, as whoever starts us knows it; it may have ended before we asked.
    """
    ctypes.CDLL(None).prctl(_ON_PARENTS_DEATH, number)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)
