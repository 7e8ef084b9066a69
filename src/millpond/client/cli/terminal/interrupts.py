"""Ctrl-C where it would do harm: held back while something must not be half done, silenced once it was answered; and
other ends that are to be as mild as it."""

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
    """Inside the block, a service manager and a closed terminal end this as Ctrl-C does: what is half done goes."""
    ends = [end for end in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(end) is signal.SIG_DFL]
    for end in ends:
        signal.signal(end, signal.default_int_handler)
    try:
        yield
    finally:
        for end in ends:
            signal.signal(end, signal.SIG_DFL)


def silence() -> None:
    """Ignore any further Ctrl-C: this process is about to end by itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
