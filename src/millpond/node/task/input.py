"""A task's standard input: the supervisor passes on what the server puts into the ring (``input_ring``).

Like output it is announced by SIGIO: by the server when it has put something there, by the kernel when the task has
read some of what waits in its pipe, or has closed it. Nothing is taken out of the ring that the task has no room for. A
run that begins after an earlier one was sent something is not started: that input is gone, and the rest, or nothing,
would pass for all of it. Standard library only.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
from pathlib import Path

from millpond.node.task.input_ring import InputRing, was_used
from millpond.node.task.start_plan import Identity

_PIECE = 65_536
_READ_BEFORE = "an earlier run was sent standard input, which comes once only"


class TaskInput:
    """The standard input of one command.

    Args:
        path: of the ring, which is made.
        identity: whom the command runs as, so that it may open ``/dev/stdin``; None: as we do.

    Attributes:
        end: what the command reads from; ours until ``begin``.

    Raises:
        OSError: there is no room for the file; with ``ESPIPE``: an earlier run has read input.
    """

    def __init__(self, path: Path, identity: Identity | None) -> None:
        earlier = [each for each in path.parent.parent.glob(f"attempt-*/{path.name}") if each != path]
        if any(was_used(each) for each in earlier):
            raise OSError(errno.ESPIPE, _READ_BEFORE)
        self._ring = InputRing.create(path)
        self.end, self._pipe = os.pipe()
        self._is_open = True
        os.set_blocking(self._pipe, False)
        if identity is not None:
            os.fchown(self.end, identity.uid, -1)

    def begin(self) -> None:
        """The command runs: its end of the pipe is its own from now on."""
        os.close(self.end)
        fcntl.fcntl(self._pipe, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(self._pipe, fcntl.F_SETFL, fcntl.fcntl(self._pipe, fcntl.F_GETFL) | fcntl.FASYNC)

    def pass_on(self) -> None:
        """Give the task as much as it has room for, and the end when that has come."""
        while self._is_open:
            data = self._ring.next(_PIECE)
            if not data and (self._ring.ended or self._is_refused()):
                self.close()
                return
            if not data:
                return
            try:
                self._ring.take(os.write(self._pipe, data))
            except BlockingIOError:
                return
            except OSError:  # it reads no more
                self.close()

    def close(self) -> None:
        """Nothing more is passed on."""
        if self._is_open:
            self._is_open = False
            os.close(self._pipe)
            self._ring.close_reader()
            self._ring.close()

    def _is_refused(self) -> bool:
        """Whether the task has closed its standard input."""
        poll = select.poll()
        poll.register(self._pipe, 0)
        return bool(poll.poll(0))
