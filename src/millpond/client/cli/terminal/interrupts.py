"""Ctrl-C where it would do harm: held back while something must not be half done, silenced once it was answered."""

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


def silence() -> None:
    """Ignore any further Ctrl-C: this process is about to end by itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
