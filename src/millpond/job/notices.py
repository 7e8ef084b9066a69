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
"""How long a write that is under way may keep callbacks waiting: the reader of the output may have stopped."""
_AGAIN_S = 0.01


class _Notice:
    """What is known of the notice. A handler of signals writes it, at any place of itself too: so without a lock."""

    came = False
    is_installed = False
    patience_ends: float | None = None


_heeding = threading.Lock()
"""Taken once and never given back, by the one handler that heeds the notice."""
_callbacks: list[tuple[Callable[[], object], bool]] = []


def should_stop() -> bool:
    """Whether the task was asked to leave. Ask once per step, save when it is so, and return.

    From the first call on the notice no longer ends the program by itself.

    Raises:
        InvalidInputError: the first call came from another thread than the main one.
    """
    _install()
    return _Notice.came


def on_checkpoint(save: Callable[[], object], *, leave: bool = True) -> None:
    """Have ``save`` called when the task is asked to leave; then the program exits with code 0.

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
    if _Notice.is_installed:
        return
    if threading.current_thread() is not threading.main_thread():
        raise InvalidInputError(
            "the notice can be listened to from the main thread only", "call should_stop() there once, at the start"
        )
    signal.signal(getattr(signal, os.environ.get("MILLPOND_NOTICE_SIGNAL", "SIGTERM")), _heard)
    _Notice.is_installed = True


def _heard(number: int, _frame: FrameType | None) -> None:
    _Notice.came = True
    if not _callbacks or _heeding.locked():
        return  # nothing to do, or a notice that came before is being heeded
    if _is_printing():
        if _Notice.patience_ends is None:
            _Notice.patience_ends = time.monotonic() + _PATIENCE_S
            threading.Thread(target=_remind, args=(number,), daemon=True).start()
        if time.monotonic() < _Notice.patience_ends:
            return
    if not _heeding.acquire(blocking=False):
        return
    for save, _ in _callbacks:
        save()
    if any(leave for _, leave in _callbacks):
        sys.exit(0)


def _remind(number: int) -> None:
    """Send the signal again until it is heeded: one that comes just before the main thread sleeps is seen after it."""
    main = threading.main_thread().ident
    assert main is not None, "the main thread heard the signal"
    while not _heeding.locked():
        time.sleep(_AGAIN_S)
        signal.pthread_kill(main, number)


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
            pass  # it has no reader, or is closed: no reason not to save
    return False
