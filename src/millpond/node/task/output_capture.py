"""How a task's output gets into its log: the supervisor reads a pipe for each stream and notes what came from which.

Both streams go into one file in the order in which they are read, so the log reads as a terminal would show it; the
index beside it (``log_index``) distinguishes the streams and says when each piece came. A mark is written when the
stream changes, and else at most a hundred times a second.

Within the moment that the supervisor needs to wake up, it cannot be seen which text was written first: what came to
the stream that was written to first then stands before what came to the other. What goes to one stream keeps its order.

The kernel announces output with SIGIO (``O_ASYNC``), so that the supervisor has one thing to wait for: signals. An
epoll lists the pipes in the order in which they were first written to. Standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import time
from pathlib import Path

from millpond.node.host.files import write_all
from millpond.node.task.log_index import MARK_BYTES, Mark, Stream
from millpond.node.task.start_plan import Identity

MARK_EVERY_US = 10_000
_PIPE_BYTES = 65_536
_MOST_READS = 16
"""Of one pipe, before the other one and the supervisor's other duties have their turn."""
_NEW_FILE = os.O_WRONLY | os.O_CREAT


class OutputCapture:
    """The output of one command, from its pipes to its log.

    Args:
        log, index: files to append to.
        identity: whom the command runs as, so that it may open ``/dev/stdout``; None: as we do.

    Attributes:
        ends: what the command writes standard output and standard error to; ours until ``begin``.

    Raises:
        OSError: there is no room for the files.
    """

    def __init__(self, log: Path, index: Path, identity: Identity | None) -> None:
        self._log = os.open(log, _NEW_FILE | os.O_APPEND, 0o600)
        self._index = os.open(index, _NEW_FILE, 0o600)
        self._marks = os.fstat(self._index).st_size // MARK_BYTES
        self._last: Mark | None = None
        self._streams: dict[int, Stream] = {}
        self._unread: list[int] = []
        self._ready = select.epoll()
        self.ends: dict[Stream, int] = {}
        for stream in Stream:
            pipe, self.ends[stream] = os.pipe()
            self._streams[pipe] = stream
            os.set_blocking(pipe, False)
            self._ready.register(pipe, select.EPOLLIN | select.EPOLLET)
            if identity is not None:
                os.fchown(self.ends[stream], identity.uid, -1)

    def begin(self) -> None:
        """The command runs: its ends of the pipes are its own from now on, and what it writes is announced."""
        self._close_ends()
        for pipe in self._streams:
            fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
            fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | fcntl.FASYNC)

    def drain(self) -> bool:
        """Take what was written up to now; returns whether some of it has to wait for the next call."""
        ready = [*self._unread, *(pipe for pipe, _ in self._ready.poll(0) if pipe not in self._unread)]
        self._unread = [pipe for pipe in ready if not self._empty(pipe)]
        return bool(self._unread)

    def close(self) -> None:
        """The command is over: take the rest, and close the files."""
        self._close_ends()
        self.drain()  # all of it: a pipe holds less than one round takes
        for file in (*self._streams, self._log, self._index):
            os.close(file)
        self._streams.clear()
        self._ready.close()

    def _close_ends(self) -> None:
        for end in self.ends.values():
            os.close(end)
        self.ends.clear()

    def _empty(self, pipe: int) -> bool:
        """Take what one pipe holds; returns whether that was all."""
        stream = self._streams[pipe]
        for _ in range(_MOST_READS):
            try:
                data = os.read(pipe, _PIPE_BYTES)
            except BlockingIOError:
                return True
            if not data:
                os.close(pipe)  # which takes it out of the epoll as well
                del self._streams[pipe]
                return True
            self._append(stream, data)
        return False

    def _append(self, stream: Stream, data: bytes) -> None:
        """What a full disk has no room for is lost: the program goes on all the same."""
        with contextlib.suppress(OSError):
            self._mark(stream)
            write_all(self._log, data)

    def _mark(self, stream: Stream) -> None:
        """Before the text, so that no reader takes it for another stream's."""
        now_us = time.time_ns() // 1_000
        last = self._last
        if last is not None and stream is last.stream and 0 <= now_us - last.time_us < MARK_EVERY_US:
            return
        mark = Mark(os.fstat(self._log).st_size, now_us, stream)  # the server may add lines of its own
        if os.pwrite(self._index, mark.packed(), self._marks * MARK_BYTES) == MARK_BYTES:
            self._marks += 1
            self._last = mark
