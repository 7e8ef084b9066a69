"""The notice that a task gets before it has to leave its cards: save, and go.

Millpond sends the job's checkpoint signal (SIGTERM unless the job file names another) and kills the task when its grace
is over. A program that left in time with its work saved goes on from there in its next attempt.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

from millpond.model.errors import InvalidInputError

_PATIENCE_S = 2.0
"""How long a write that is under way may keep callbacks waiting: whoever reads the output may have stopped."""
_AGAIN_S = 0.01

_noticed = threading.Event()
_heeded = threading.Event()
_installed = threading.Event()
_patience: dict[str, float] = {}
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


def _heard(number: int, _frame: FrameType | None) -> None:
    _noticed.set()
    if not _callbacks or _heeded.is_set():
        return  # nothing to do, or told twice: the first notice is being heeded
    _patience.setdefault("until", time.monotonic() + _PATIENCE_S)
    if _is_printing() and time.monotonic() < _patience["until"]:
        main = threading.main_thread().ident
        assert main is not None, "the main thread runs this"
        again = threading.Timer(_AGAIN_S, signal.pthread_kill, (main, number))
        again.daemon = True
        again.start()
        return
    _heeded.set()
    for save, _ in _callbacks:
        save()
    if any(leave for _, leave in _callbacks):
        sys.exit(0)


def _is_printing() -> bool:
    """Whether the signal came in the midst of a write to standard output or error, in which nothing can be printed.

    A callback that prints there would fail (``RuntimeError: reentrant call``), and the work would not be saved.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except RuntimeError:
            return True
        except (OSError, ValueError):
            pass  # nobody reads it, or it is closed: no reason not to save
    return False
