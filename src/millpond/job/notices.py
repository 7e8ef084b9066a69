"""The notice that a task gets before it has to leave its cards: save, and go.

Millpond sends the job's checkpoint signal (SIGTERM unless the job file names another) and kills the task when its grace
is over. A program that left in time with its work saved goes on from there in its next attempt.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

from millpond.model.errors import InvalidInputError

_noticed = threading.Event()
_installed = threading.Event()
_callbacks: list[tuple[Callable[[], object], bool]] = []


def should_stop() -> bool:
    """Whether the task was told to leave. Ask once per step, save when it is so, and return.

    From the first call on the notice no longer ends the program by itself.

    Raises:
        InvalidInputError: the first call came from another thread than the main one.
    """
    _install()
    return _noticed.is_set()


def on_checkpoint(save: Callable[[], object], *, leave: bool = True) -> None:
    """Have ``save`` called when the task is told to leave; then the program exits with code 0.

    It is called in the main thread between two instructions of Python, wherever that is. Work that is consistent only
    between steps is better saved where ``should_stop`` is asked.

    Args:
        leave: false leaves the end to the program, which asks ``should_stop``.

    Raises:
        InvalidInputError: called from another thread than the main one.
    """
    _install()
    _callbacks.append((save, leave))


def _install() -> None:
    if _installed.is_set():
        return
    if threading.current_thread() is not threading.main_thread():
        raise InvalidInputError(
            "the notice can be listened to from the main thread only", "call should_stop() there once, at the start"
        )
    signal.signal(getattr(signal, os.environ.get("MILLPOND_NOTICE_SIGNAL", "SIGTERM")), _heard)
    _installed.set()


def _heard(_number: int, _frame: FrameType | None) -> None:
    if _noticed.is_set():
        return  # told twice: the first notice is being heeded
    _noticed.set()
    for save, _ in _callbacks:
        save()
    if any(leave for _, leave in _callbacks):
        sys.exit(0)
