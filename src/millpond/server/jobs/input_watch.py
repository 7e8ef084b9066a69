"""The end of standard input whose sender is gone: else a task that reads it would wait, and hold its cards, for ever.

A client that is cut off looks for its server for two minutes, and then goes on where it was. So a sender that has not
been heard of for much longer (``task_inputs.SILENT_S``) does not come back.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

from millpond.model.amounts import seconds_text
from millpond.server.jobs.task_inputs import SILENT_S, TaskInputs
from millpond.server.runtime.loop import Loop

log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 30.0


class InputWatch:
    """Looks at the standard input of all running jobs, on a thread of its own."""

    def __init__(self, loop: Loop, inputs: TaskInputs) -> None:
        self._loop = loop
        self._inputs = inputs
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="input-watch", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """No more looks."""
        self._closed.set()

    def look(self) -> None:
        """End the input of those whose sender is gone, and say so in their histories.

        Raises:
            OSError: what is known of a task's input cannot be read or written.
        """
        for job in self._inputs.end_silent(self._loop.job_cache.newest_first()):
            text = f"its standard input was ended: its sender was not heard of for {seconds_text(SILENT_S)}"
            self._loop.note(job, text)

    def _run(self) -> None:
        while not self._closed.wait(LOOK_EVERY_S):
            if not self._loop.alive:
                return
            try:
                self.look()
            except OSError as error:
                log.warning("standard input cannot be looked after: %s", error)
