"""What is to happen where a block of code takes too long, while it still runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def called_if_late(within_s: float, act: Callable[[], object]) -> Iterator[None]:
    """Call ``act`` once, in a thread of its own, if the block is not over after so many seconds."""
    timer = threading.Timer(within_s, act)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
