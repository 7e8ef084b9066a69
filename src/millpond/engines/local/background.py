"""Run blocking work beside the engine's loop, and report work that the machine cannot do at the moment.

That a disk fails, or too many files are open, is no defect of the engine: what has to be done is done once it is
possible.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

log = logging.getLogger(__name__)

AGAIN_S: Final = 1.0
"""What the machine could not do is tried again after so long."""

Result = TypeVar("Result")


def when_possible(
    loop: asyncio.AbstractEventLoop,
    act: Callable[[], Result],
    then: Callable[[Result], None],
    *,
    is_first: bool = True,
) -> None:
    """Call ``act`` on the loop until it raises no OSError, and then ``then`` with its result."""
    try:
        result = act()
    except OSError as error:
        if is_first:
            _log_trouble(error)
        loop.call_later(AGAIN_S, lambda: when_possible(loop, act, then, is_first=False))
    else:
        then(result)


def _log_trouble(error: OSError) -> None:
    log.warning("the machine fails (%s): what has to be done is tried again every %g s", error, AGAIN_S)


class Background:
    """One thread for each piece of work: pieces are few, and each has a deadline.

    Attributes:
        loop: the engine's.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop

    def run(self, act: Callable[[], Result], then: Callable[[Result], None]) -> None:
        """Call ``act`` in a thread until it raises no OSError, and ``then`` on the loop with its result; a defect goes
        to the loop's handler. To be called on the loop; where there is no room for a thread, it begins later."""

        def work() -> None:
            try:
                result = self._insist(act)
            except Exception as error:  # handed on to the engine's caller
                failure = {"message": "a defect in the background", "exception": error}
                self.call(self.loop.call_exception_handler, failure)
            else:
                self.call(then, result)

        def begin() -> None:
            try:
                threading.Thread(target=work, name="sharing", daemon=True).start()
            except RuntimeError as error:
                raise OSError(errno.EAGAIN, "no room for another thread") from error

        when_possible(self.loop, begin, lambda _: None)

    def _insist(self, act: Callable[[], Result]) -> Result:
        is_first = True
        while True:
            try:
                return act()
            except OSError as error:
                if is_first:
                    _log_trouble(error)
                is_first = False
                if self.loop.is_closed():
                    raise
            time.sleep(AGAIN_S)

    def call(self, then: Callable[..., None], *results: object) -> None:
        """Call ``then`` on the loop, from any thread; nothing happens once the engine is closed."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(then, *results)
