"""Signals that end a command: Ctrl-C held back while something must not be half done, or silenced once it was answered;
SIGTERM and SIGHUP taken as Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_TERMINATIONS: Final = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def held_back() -> Iterator[None]:
    """Ctrl-C inside the block, and what is taken as such, takes effect at its end, when its outcome is known."""
    came: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    as_ctrl_c = [each for each in _TERMINATIONS if signal.getsignal(each) is signal.default_int_handler]
    before = {each: signal.signal(each, note) for each in (signal.SIGINT, *as_ctrl_c)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    if came:
        raise KeyboardInterrupt


@contextmanager
def with_termination() -> Iterator[None]:
    """Inside the block, SIGTERM and SIGHUP end the command as Ctrl-C does, so that it removes what is half done."""
    taken = [each for each in _TERMINATIONS if signal.getsignal(each) is signal.SIG_DFL]
    for each in taken:
        signal.signal(each, signal.default_int_handler)
    try:
        yield
    finally:
        for each in taken:
            signal.signal(each, signal.SIG_DFL)


def silence() -> None:
    """Ignore any further Ctrl-C: this process is about to end by itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
