"""This command's standard input as that of a job's task."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import stat
import sys
import threading

from millpond.client.cli.error_output import complain
from millpond.client.sdk import Client
from millpond.model.errors import MillpondError
from millpond.specs.api.jobs.jobs import JobInfo


class InputFeeder:
    """Sends standard input to a job in a thread of its own.

    Attributes:
        done: nothing of it is left to be sent.
    """

    def __init__(self, client: Client) -> None:
        self.done = False
        self._client = client

    def start(self, job: JobInfo) -> None:
        """The job runs, or has run."""
        threading.Thread(target=self._run, args=(job,), name="standard-input", daemon=True).start()

    def _run(self, job: JobInfo) -> None:
        from millpond.client.sdk.resources.inputs import HEARD_EVERY_S, PIECE_BYTES

        file = sys.stdin.fileno()
        ready = select.poll()
        ready.register(file, select.POLLIN)

        def read(most: int) -> bytes | None:
            return os.read(file, most) if ready.poll(HEARD_EVERY_S * 1000) else None

        with contextlib.suppress(OSError):  # it is no pipe, or one's pipes have all the room that they may have
            fcntl.fcntl(file, fcntl.F_SETPIPE_SZ, PIECE_BYTES)
        try:
            self._client.inputs.feed(job.id, job.attempt, read)
        except MillpondError as error:
            complain(error)
            return
        self.done = True


def is_redirected() -> bool:
    """Whether standard input is a pipe or a file, not a terminal nor nothing at all."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError, AttributeError):  # closed
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)
