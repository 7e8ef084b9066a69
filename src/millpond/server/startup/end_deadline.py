"""The bound on the end of a server's process: what hangs then (a database that is cut off, a driver) is not waited for.

A thread that waits for an answer cannot be ended, and Python waits for it at the end of a process. A server may be
killed at any moment, as all that it has acknowledged is stored: so it ends itself that way when its time is over. The
thread that sees to it is there from the start: a process may have to end because it can start no more of them.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

ENDS_WITHIN_S: Final = 25.0
"""Less than `pond down` waits for."""
_NOT_ENDED: Final = 1


class EndDeadline:
    """One process's.

    Args:
        within_s: from the first ``begin`` on.
        end: ends the process at once with an exit code.
    """

    def __init__(self, within_s: float = ENDS_WITHIN_S, end: Callable[[int], object] = os._exit) -> None:
        self._within_s = within_s
        self._end = end
        self._begun = threading.Event()
        threading.Thread(target=self._await, name="end-deadline", daemon=True).start()

    def begin(self) -> None:
        """The process is to end. Any thread, and more than once."""
        self._begun.set()

    def _await(self) -> None:
        self._begun.wait()
        time.sleep(self._within_s)
        log.critical(
            "the server has not ended within %g s and is ended by force; nothing that it acknowledged is lost, and "
            "jobs go on. Where its threads were:",
            self._within_s,
        )
        faulthandler.dump_traceback(all_threads=True)
        self._end(_NOT_ENDED)
