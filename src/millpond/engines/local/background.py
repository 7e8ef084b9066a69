"""Work that blocks, beside the engine's loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


class Background:
    """One thread for each piece of work: pieces are few, and each has a deadline.

    Attributes:
        loop: the engine's.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop

    def run(self, act: Callable[[], Result], then: Callable[[Result], None]) -> None:
        """Call ``act`` in a thread, and ``then`` on the loop with its result; a defect goes to the loop's handler."""

        def work() -> None:
            try:
                result = act()
            except Exception as error:  # handed on to the engine's caller
                failure = {"message": "a defect in the background", "exception": error}
                self.call(self.loop.call_exception_handler, failure)
            else:
                self.call(then, result)

        threading.Thread(target=work, name="sharing", daemon=True).start()

    def call(self, then: Callable[..., None], *results: object) -> None:
        """Call ``then`` on the loop, from any thread; nothing happens once the engine is closed."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(then, *results)
