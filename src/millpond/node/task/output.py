"""How a task's output gets into its log: the supervisor reads a pipe for each stream and notes what came from which.

Both streams go into one file in the order in which they are read, so the log reads as a terminal would show it; the
index beside it (``task-0.index``) distinguishes the streams and says when each piece came. It consists of marks: from
this offset of the log on the bytes were written to this stream, at this time. One is written when the stream changes,
and else at most a hundred times a second. Readers of the log look them up.

Within the moment that the supervisor needs to wake up, it cannot be seen which text was written first: what came to
the stream that was written to first then stands before what came to the other. What goes to one stream keeps its order.

The kernel announces output with SIGIO (``O_ASYNC``), so that the supervisor has one thing to wait for: signals. An
epoll lists the pipes in the order in which they were first written to. Standard library only.
"""

from __future__ import annotations

import bisect
import contextlib
import os
import select
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, Self

from millpond.node.host.files import announce_by_signal, write_all
from millpond.node.task.identity import Identity

MARK_EVERY_US = 10_000
_MARK: Final = struct.Struct("<QQ")
_MARKS_AT_ONCE: Final = 512
_PIPE_BYTES = 65_536
_MOST_READS = 16
"""Of one pipe, before the other one and the supervisor's other duties have their turn."""
_NEW_FILE = os.O_WRONLY | os.O_CREAT
_OUTPUT_LOST: Final = b"\nmillpond: output is missing here: the disk was full\n"


class Stream(IntEnum):
    """Where a program writes to."""

    STDOUT = 0
    STDERR = 1


@dataclass(frozen=True, slots=True)
class Mark:
    """From ``offset`` on (bytes of the log) everything was written to ``stream``, first at ``time_us``.

    Attributes:
        time_us: microseconds since 1970.
    """

    offset: int
    time_us: int
    stream: Stream

    def packed(self) -> bytes:
        """As it stands in the file."""
        return _MARK.pack(self.offset, self.time_us << 1 | self.stream)

    @staticmethod
    def unpacked(data: bytes) -> Mark:
        """What ``packed`` gave."""
        offset, rest = _MARK.unpack(data)
        return Mark(offset, rest >> 1, Stream(rest & 1))


MARK_BYTES: Final = _MARK.size


class LogIndex:
    """The marks of one log, in their order. A mark that is not whole yet does not count.

    Raises:
        FileNotFoundError: the log has none.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDONLY)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: Any) -> None:
        os.close(self._file)

    def __len__(self) -> int:
        return os.fstat(self._file).st_size // MARK_BYTES

    def __getitem__(self, number: int) -> Mark:
        return Mark.unpacked(os.pread(self._file, MARK_BYTES, number * MARK_BYTES))

    def offset_since(self, time_us: int) -> int | None:
        """Where in the log stands what was written at this time or later; None: nothing was."""
        number = bisect.bisect_left(self, time_us, key=lambda mark: mark.time_us)
        return self[number].offset if number < len(self) else None

    def marks_from(self, offset: int) -> Iterator[Mark]:
        """The mark that holds for this offset of the log, if any, and all behind it."""
        number = max(bisect.bisect_right(self, offset, key=lambda mark: mark.offset) - 1, 0)
        while data := os.pread(self._file, MARK_BYTES * _MARKS_AT_ONCE, number * MARK_BYTES):
            whole = len(data) // MARK_BYTES
            if not whole:
                return
            for begin in range(0, whole * MARK_BYTES, MARK_BYTES):
                yield Mark.unpacked(data[begin : begin + MARK_BYTES])
            number += whole


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
        self._lost = False  # what came last
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
            announce_by_signal(pipe)

    def drain(self) -> bool:
        """Take what was written up to now; returns whether some of it has to wait for the next call."""
        ready = [*self._unread, *(pipe for pipe, _ in self._ready.poll(0) if pipe not in self._unread)]
        self._unread = [pipe for pipe in ready if not self._empty(pipe)]
        return bool(self._unread)

    def close(self) -> None:
        """The command is over: take the rest, and close the files."""
        self._close_ends()
        self.drain()  # all of it: a pipe holds less than one round takes
        if self._lost:
            self._append(Stream.STDERR, b"")
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
        """What a full disk has no room for is lost: the log says so once there is room, and the program goes on."""
        lost, self._lost = self._lost, True
        with contextlib.suppress(OSError):
            if lost:
                self._mark(Stream.STDERR)
                write_all(self._log, _OUTPUT_LOST)
            self._mark(stream)
            write_all(self._log, data)
            self._lost = False

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
