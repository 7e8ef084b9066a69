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


class LateCalls:
    """Calls of this kind for several blocks, which can all be had early: when none is waited for any longer."""

    def __init__(self) -> None:
        self._acts: set[Callable[[], object]] = set()

    @contextmanager
    def called_if_late(self, within_s: float, act: Callable[[], object]) -> Iterator[None]:
        """Call ``act`` if the block is not over after so many seconds, or when ``call_all`` is called."""
        self._acts.add(act)
        try:
            with called_if_late(within_s, act):
                yield
        finally:
            self._acts.discard(act)

    def call_all(self) -> None:
        """Call them for all blocks that run. Any thread."""
        for act in list(self._acts):
            act()
