"""What stands between a client's standard input and a task's: a ring in a file beside the task's record.

The server writes to it, the task's supervisor reads from it (``input``), and each notes how far it is. So a server
that was restarted knows exactly what it has taken, a slow task makes its client wait, and no input, however long, takes
more than the ring's room. Both sides are on one machine; each number is written by one side alone. Standard library
only.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any, Final, Self

ROOM_BYTES: Final = 2**20
_HEADER_BYTES: Final = 4_096
_NUMBER: Final = struct.Struct("<Q")
_RECEIVED, _FED, _ENDED, _CLOSED = (place * _NUMBER.size for place in range(4))


class InputRing:
    """The ring of one run of a task.

    Raises:
        FileNotFoundError: that run reads no standard input.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR)

    @staticmethod
    def create(path: Path) -> InputRing:
        """A new one, with nothing in it."""
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
        os.truncate(path, _HEADER_BYTES)
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
        """Take as much of the data as there is room for; returns how much that was."""
        received = self.received
        taken = data[: max(0, ROOM_BYTES - (received - self.fed))]
        self._write_around(received, taken)
        self._note(_RECEIVED, received + len(taken))  # only now: what is counted is there
        return len(taken)

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
        at = position % ROOM_BYTES
        first = data[: ROOM_BYTES - at]
        os.pwrite(self._file, first, _HEADER_BYTES + at)
        os.pwrite(self._file, data[len(first) :], _HEADER_BYTES)

    def _number(self, place: int) -> int:
        number: int = _NUMBER.unpack(os.pread(self._file, _NUMBER.size, place))[0]
        return number

    def _note(self, place: int, number: int) -> None:
        os.pwrite(self._file, _NUMBER.pack(number), place)


def was_used(path: Path) -> bool:
    """Whether anything was sent to the run whose ring lies there, be it the end."""
    with InputRing(path) as ring:
        return ring.received > 0 or ring.ended
