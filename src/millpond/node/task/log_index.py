"""Which bytes of a task's log came from which stream, and when: marks in a file beside the log (``task-0.index``).

A mark says that from this offset of the log on the bytes were written to this stream, at this time. The supervisor
writes them (``capture``), readers of the log look them up. Standard library only.
"""

from __future__ import annotations

import bisect
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, Self

_MARK: Final = struct.Struct("<QQ")
_MARKS_AT_ONCE: Final = 512


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
