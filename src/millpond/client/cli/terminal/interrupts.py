"""Signals that end a command: Ctrl-C held back while something must not be half done, or silenced once it was answered;
SIGTERM and SIGHUP taken as Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def held_back() -> Iterator[None]:
    """Ctrl-C inside the block takes effect at its end, when its outcome is known."""
    came: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt


@contextmanager
def with_termination() -> Iterator[None]:
    """Inside the block, SIGTERM and SIGHUP end the command as Ctrl-C does, so that it removes what is half done."""
    taken = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is signal.SIG_DFL]
    for each in taken:
        signal.signal(each, _as_ctrl_c)
    try:
        yield
    finally:
        for each in taken:
            signal.signal(each, signal.SIG_DFL)


def _as_ctrl_c(_number: int, frame: FrameType | None) -> None:
    """Do what Ctrl-C does now, also where it is held back; where it is ignored, as behind ``&``, interrupt."""
    handler = signal.getsignal(signal.SIGINT)
    (handler if callable(handler) else signal.default_int_handler)(signal.SIGINT, frame)


def silence() -> None:
    """Ignore any further Ctrl-C: this process is about to end by itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
