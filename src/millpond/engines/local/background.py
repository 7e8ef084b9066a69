"""Work that blocks, beside the engine's loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


class Background:
    """One thread for each piece of work: pieces are few, and each has a deadline."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def run(self, act: Callable[[], Result], then: Callable[[Result], None]) -> None:
        """Call ``act`` in a thread, and ``then`` on the loop with its result; a defect goes to the loop's handler."""

        def work() -> None:
            try:
                result = act()
            except Exception as error:  # handed on to the engine's caller
                failure = {"message": "a defect in the background", "exception": error}
                self.call(self._loop.call_exception_handler, failure)
            else:
                self.call(then, result)

        threading.Thread(target=work, name="sharing", daemon=True).start()

    def call(self, then: Callable[..., None], *results: object) -> None:
        """Call ``then`` on the loop, from any thread; nothing happens once the engine is closed."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(then, *results)

    def call_later(self, delay_s: float, then: Callable[[], None]) -> None:
        """Call ``then`` on the loop after so many seconds; on the loop only."""
        self._loop.call_later(delay_s, then)
