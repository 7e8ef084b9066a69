"""The end of standard input whose sender is gone: else a task that reads it would wait, and hold its cards, for ever.

A client that is cut off looks for its server for two minutes, and then goes on where it was. So a sender that has not
been heard of for much longer (``task_inputs.SILENT_S``) does not come back.
"""

from __future__ import annotations

from typing import Final

from millpond.model.amounts import seconds_text
from millpond.node.host.periodic_worker import PeriodicWorker
from millpond.server.jobs.task_inputs import SILENT_S, TaskInputs
from millpond.server.runtime.loop import Loop

LOOK_EVERY_S: Final = 30.0


class InputWatch:
    """Looks at the standard input of all running jobs, on a thread of its own."""

    def __init__(self, loop: Loop, inputs: TaskInputs) -> None:
        self._loop = loop
        self._inputs = inputs
        self._worker = PeriodicWorker("input-watch", self.look, LOOK_EVERY_S, "standard input cannot be looked after")

    def start(self) -> None:
        """Begin to look."""
        self._worker.start(LOOK_EVERY_S)

    def close(self) -> None:
        """No more looks."""
        self._worker.close()

    def look(self) -> None:
        """End the input of those whose sender is gone, and say so in their histories.

        Raises:
            OSError: what is known of a task's input cannot be read or written.
        """
        for job in self._inputs.end_silent(self._loop.job_cache.newest_first()):
            text = f"its standard input was ended: its sender was not heard of for {seconds_text(SILENT_S)}"
            self._loop.note(job, text)
