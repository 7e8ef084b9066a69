"""A task's standard input: a ring in a file beside its record, between a client and the task.

The server writes to the ring, the task's supervisor reads from it, and each notes how far it is. So a server that was
restarted knows exactly what it has taken, a slow task makes its client wait, and no input, however long, takes more
than the ring's room. Both sides are on one machine; each number is written by one side alone.

Like output it is announced by SIGIO: by the server when it has put something there, by the kernel when the task has
read some of what waits in its pipe, or has closed it. Nothing is taken out of the ring that the task has no room for. A
run that begins after an earlier one was sent something is not started: that input is gone, and the rest, or nothing,
would pass for all of it. Standard library only.
"""

from __future__ import annotations

import errno
import os
import select
import struct
from pathlib import Path
from typing import Any, Final, Self

from millpond.node.host.files import announce_by_signal
from millpond.node.task.identity import Identity

ROOM_BYTES: Final = 2**20
_HEADER_BYTES: Final = 4_096
_NUMBER: Final = struct.Struct("<Q")
_RECEIVED, _FED, _ENDED, _CLOSED = (place * _NUMBER.size for place in range(4))
_PIECE: Final = 65_536
READ_BEFORE: Final = "an earlier run was sent standard input, which comes once only"


class InputRing:
    """The ring of one run of a task.

    Raises:
        FileNotFoundError: that run reads no standard input.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR)

    @staticmethod
    def create(path: Path) -> InputRing:
        """A new one, with nothing in it: an empty file, as the server may put something there the moment it exists."""
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
        return InputRing(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: Any) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)

    @property
    def received(self) -> int:
        """Bytes that the server has taken from the client."""
        return self._number(_RECEIVED)

    @property
    def fed(self) -> int:
        """Bytes that the supervisor has passed on to the task."""
        return self._number(_FED)

    @property
    def ended(self) -> bool:
        """The client has nothing more."""
        return bool(self._number(_ENDED))

    @property
    def closed(self) -> bool:
        """The task takes nothing more."""
        return bool(self._number(_CLOSED))

    def put(self, data: bytes) -> int:
        """Take as much of the data as there is room for; returns how much that was.

        Raises:
            OSError: the disk takes no more; nothing counts as taken.
        """
        received = self.received
        taken = data[: max(0, ROOM_BYTES - (received - self.fed))]
        self._write_around(received, taken)
        self._note(_RECEIVED, received + len(taken))  # only now: what is counted is there
        return len(taken)

    def keep(self) -> None:
        """What was sent by now counts as sent after a power cut, too."""
        os.fsync(self._file)

    def end(self) -> None:
        """The client has nothing more."""
        self._note(_ENDED, 1)

    def next(self, most: int) -> bytes:
        """What comes next for the task, as far as it lies in one piece."""
        fed = self.fed
        at = fed % ROOM_BYTES
        return os.pread(self._file, min(most, self.received - fed, ROOM_BYTES - at), _HEADER_BYTES + at)

    def take(self, count: int) -> None:
        """So much of it was passed on."""
        self._note(_FED, self.fed + count)

    def close_reader(self) -> None:
        """The task takes nothing more, so the room is not needed any longer."""
        self._note(_CLOSED, 1)
        os.ftruncate(self._file, _HEADER_BYTES)

    def _write_around(self, position: int, data: bytes) -> None:
        rest = memoryview(data)
        while rest:  # a disk that fills up takes a part
            at = position % ROOM_BYTES
            written = os.pwrite(self._file, rest[: ROOM_BYTES - at], _HEADER_BYTES + at)
            position, rest = position + written, rest[written:]

    def _number(self, place: int) -> int:
        """One of the numbers in front; 0 in a file that is new, or that a power cut has left empty."""
        return int.from_bytes(os.pread(self._file, _NUMBER.size, place), "little")

    def _note(self, place: int, number: int) -> None:
        os.pwrite(self._file, _NUMBER.pack(number), place)


def was_sent_before(path: Path) -> bool:
    """Whether an earlier run of a task was sent standard input.

    Args:
        path: of the ring of this run.
    """
    earlier = [each for each in path.parent.parent.glob(f"attempt-*/{path.name}") if each != path]
    return any(_was_used(each) for each in earlier)


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
        if was_sent_before(path):
            raise OSError(errno.ESPIPE, READ_BEFORE)
        self._ring = InputRing.create(path)
        self.end, self._pipe = os.pipe()
        self._is_open = True
        os.set_blocking(self._pipe, False)
        if identity is not None:
            os.fchown(self.end, identity.uid, -1)

    def begin(self) -> None:
        """The command runs: its end of the pipe is its own from now on."""
        os.close(self.end)
        announce_by_signal(self._pipe)

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


def _was_used(path: Path) -> bool:
    """Whether anything was sent to the run whose ring lies there, be it the end."""
    with InputRing(path) as ring:
        return ring.received > 0 or ring.ended
